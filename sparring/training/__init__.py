"""The loop and what it drives: state, jobs, lessons, opponents, schedules."""
