"""What a person looks at: a run as one HTML file that needs nothing but a browser."""

from sparring.view.page import write_report

__all__ = ["write_report"]
