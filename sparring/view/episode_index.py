"""Every recorded game of a run in an SQLite file outside the run: filters, search, and the byte
offset at which a game's line begins. Files that have changed are read again."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from sparring.core.types import MAIN, Episode, episode_from_json
from sparring.view.markup import game_name
from sparring.view.replays import outcome
from sparring.view.rundata import read_packed_lines

EVALUATION = "evaluation"  # the file of the closing evaluation's games
PAGE = 50
_SCHEMA = """
create table if not exists file (name text primary key, stamp text, games integer);
create table if not exists facet (name text primary key, counts text);
create table if not exists game (
  id integer primary key autoincrement, file text, number integer, offset integer,
  iteration integer, episode text, game text, grp text, outcome text, void text, invalid text,
  turns integer, tokens integer, seats text, seating integer
);
create unique index if not exists game_line on game (file, number);
create index if not exists game_order on game (coalesce(iteration, 1e9) desc, number);
create table if not exists seat (  -- of one seating, which many games share
  seating integer, seat text, policy text, reward real, learns integer,
  primary key (seating, seat)
) without rowid;
create table if not exists verdict (
  game integer, kind text, primary key (game, kind)
) without rowid;
create virtual table if not exists words using fts5 (text, content='');
"""
_ITERATION = "coalesce(iteration, 1e9)"  # the closing evaluation comes last, as the index has it
_ORDER = f"order by {_ITERATION} desc, number"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sparring" / "view"


class EpisodeIndex:
    """The index of one run. Safe to use from several threads and processes at once."""

    def __init__(self, run: Path, folder: Path | None = None) -> None:
        self.run = run.resolve()
        folder = folder or cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.blake2b(f"5 {self.run}".encode(), digest_size=8).hexdigest()
        self.path = folder / f"{self.run.name}-{name}.sqlite"
        self._lock = threading.Lock()
        with closing(self._connect()) as db:
            db.execute("pragma journal_mode=wal")
            db.executescript(_SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=30)
        db.row_factory = sqlite3.Row
        db.execute("pragma synchronous=off")  # a cache: what is lost is read again
        return db

    def files(self) -> dict[str, Path]:
        """The files of games by name: an iteration's digits, or `evaluation`."""
        named = {p.name.partition(".")[0]: p for p in self.run.glob("episodes/*.jsonl.gz")}
        closing_games = self.run / "evaluation_games.jsonl.gz"
        return named | ({EVALUATION: closing_games} if closing_games.is_file() else {})

    def stale(self) -> tuple[list[str], list[str], int]:
        """Names of files to be read, of files that are gone, and how many files there are."""
        files = self.files()
        with closing(self._connect()) as db:
            known = {row["name"]: row["stamp"] for row in db.execute("select * from file")}
        changed = [n for n in sorted(files, reverse=True) if known.get(n) != _stamp(files[n])]
        return changed, [name for name in known if name not in files], len(files)

    def update(self) -> None:
        """Read what has changed since the last time."""
        with self._lock:
            changed, gone, _ = self.stale()
            files = self.files()
            with closing(self._connect()) as db:
                for name in gone:
                    with db:
                        _forget(db, name)
                for name in changed:
                    with db:  # one file is one transaction: a kill leaves whole files
                        _forget(db, name)
                        _add(db, name, files[name])
                if changed or gone:
                    with db:  # counted once, since it takes a second where games are many
                        rows = [(name, json.dumps(n)) for name, n in _count(db).items()]
                        db.executemany("insert or replace into facet values (?,?)", rows)

    def need(self, file: str) -> None:
        """Read one file now: an address may name a game of a run that is not indexed yet."""
        path = self.files().get(file)
        if path is None:
            return
        with closing(self._connect()) as db, db:
            row = db.execute("select stamp from file where name = ?", (file,)).fetchone()
            if row is None or row["stamp"] != _stamp(path):
                _forget(db, file)
                _add(db, file, path)

    def page(self, query: Mapping[str, str]) -> dict[str, Any]:
        """One page of the games that pass the filters, and how many there are."""
        where, values = conditions(query)
        page = max(0, _whole(query.get("page")) or 0)
        with closing(self._connect()) as db:
            count = db.execute(f"select count(*) from game where {where}", values).fetchone()[0]
            rows = db.execute(
                f"select * from game where {where} {_ORDER} limit ? offset ?",
                [*values, PAGE, page * PAGE],
            ).fetchall()
            return {
                "count": count,
                "page": page,
                "pages": -(-count // PAGE),
                "unreadable": db.execute("select count(*) from file where games = 0").fetchone()[0],
                "games": [_row(row) for row in rows],
            }

    def group(self, file: str, group: str) -> list[dict[str, Any]]:
        with closing(self._connect()) as db:
            rows = db.execute(
                "select * from game where file = ? and grp = ? order by number limit 64",
                (file, group),
            )
            return [_row(row) for row in rows]

    def facets(self) -> dict[str, dict[str, int]]:
        """What there is to filter by, with how many games each has."""
        with closing(self._connect()) as db:
            known = {
                row["name"]: json.loads(row["counts"]) for row in db.execute("select * from facet")
            }
            return known or _count(db)

    def neighbours(self, file: str, number: int, query: Mapping[str, str]) -> dict[str, Any]:
        """The games before and after this one among those that pass the filters."""
        where, values = conditions(query)
        with closing(self._connect()) as db:
            here = db.execute(
                f"select {_ITERATION} as at from game where file = ? and number = ?", (file, number)
            ).fetchone()
            if here is None:
                return {"before": None, "after": None}
            games = {}
            for name, test, order in (
                ("before", f"({_ITERATION}, -number) > (?, ?)", f"{_ITERATION}, number desc"),
                ("after", f"({_ITERATION}, -number) < (?, ?)", f"{_ITERATION} desc, number"),
            ):
                row = db.execute(
                    f"select file, number from game where {where} and {test} order by {order} "
                    "limit 1",
                    [*values, here["at"], -number],
                ).fetchone()
                games[name] = dict(row) if row else None
            return games

    def void_reasons(self, most: int = 3) -> list[tuple[str, int]]:
        with closing(self._connect()) as db:
            rows = db.execute("select void from game where void is not null")
            return Counter(row[0] for row in rows).most_common(most)

    def read(self, file: str, number: int) -> Episode | None:
        """One game, read from where its line begins."""
        path = self.files().get(file)
        with closing(self._connect()) as db:
            row = db.execute(
                "select offset from game where file = ? and number = ?", (file, number)
            ).fetchone()
        if path is None or row is None:
            return None
        with gzip.open(path, "rb") as lines:
            lines.seek(row["offset"])
            return episode_from_json(json.loads(lines.readline()))

    def read_file(self, file: str) -> list[Episode]:
        path = self.files().get(file)
        return [episode_from_json(data) for _, data in read_packed_lines(path)] if path else []


def _count(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
    counted = {
        "game": "select game, count(*) from game group by 1",
        "outcome": "select outcome, count(*) from game group by 1",
        "opponent": "select policy, count(*) from game join "
        "(select distinct seating, policy from seat) using (seating) group by 1",
        "seat": "select seat.seat, count(*) from game join seat using (seating) "
        "where learns group by 1",
        "verdict": "select kind, count(distinct game) from verdict group by 1",
        "iteration": "select min(iteration) || '–' || max(iteration), count(*) from game",
    }
    return {
        name: {str(key): n for key, n in db.execute(sql) if key not in (None, "")}
        for name, sql in counted.items()
    }


def conditions(query: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Filters as SQL: those on a seat all speak of one seat that a learning policy holds."""
    parts, values = ["1"], list[Any]()

    def add(sql: str, *of: Any) -> None:
        parts.append(sql)
        values.extend(of)

    if query.get("iteration") == EVALUATION:
        add("iteration is null")
    elif query.get("iteration"):
        first, _, last = query["iteration"].replace("–", "-").partition("-")
        low, high = _whole(first), _whole(last) if last else _whole(first)
        add(f"{_ITERATION} between ? and ?", low if low is not None else -1, high or 0)
    for name in ("game", "outcome"):
        if query.get(name):
            add(f"game.{name} = ?", query[name])
    if query.get("opponent"):
        add("seating in (select seating from seat where policy = ?)", query["opponent"])
    if query.get("verdict"):
        add(
            "exists (select 1 from verdict where verdict.game = game.id and kind = ?)",
            query["verdict"],
        )
    for name, column in (("invalid", "invalid"), ("void", "void")):
        if query.get(name) in ("yes", "no"):
            add(f"{column} is {'not ' if query[name] == 'yes' else ''}null")
    held, of_seat = list[str](), list[Any]()
    if query.get("seat"):
        held.append("learns and seat = ?")
        of_seat.append(query["seat"])
    for name, sign in (("least", ">="), ("most", "<=")):
        if (bound := _real(query.get(name))) is not None:
            held.append(f"reward {sign} ?")
            of_seat.append(bound)
    if held:
        add(f"seating in (select seating from seat where {' and '.join(held)})", *of_seat)
    if query.get("group"):
        add("grp = ?", query["group"])
    if words := query.get("search", "").strip():
        phrase = words.replace('"', '""')
        add("game.id in (select rowid from words where words match ?)", f'"{phrase}"*')
    return " and ".join(parts), values


def _add(db: sqlite3.Connection, name: str, path: Path) -> None:
    stamp = _stamp(path)
    iteration = int(name) if name.isdigit() else None
    last = db.execute("select seq from sqlite_sequence where name = 'game'").fetchone()
    first = last[0] + 1 if last else 1  # numbers of games that were forgotten are not used again
    rows: dict[str, list[tuple[Any, ...]]] = {"game": [], "verdict": [], "words": []}
    seatings: dict[int, tuple[Any, ...]] = {}
    for offset, data in read_packed_lines(path):
        number = len(rows["game"])
        key = first + number
        try:
            columns, seats, kinds, text = _columns(data)
        except (TypeError, KeyError, AttributeError):
            continue  # whole JSON, and no episode
        seating, written = _seating(seats)
        seatings[seating] = seats
        rows["game"].append((key, name, number, offset, iteration, *columns, written, seating))
        rows["verdict"] += [(key, kind) for kind in kinds]
        rows["words"].append((key, text))
    db.executemany(f"insert into game values ({','.join('?' * 15)})", rows["game"])
    held = [(seating, *seat) for seating, seats in seatings.items() for seat in seats]
    db.executemany("insert or ignore into seat values (?,?,?,?,?)", held)
    db.executemany("insert into verdict values (?,?)", rows["verdict"])
    db.executemany("insert into words (rowid, text) values (?,?)", rows["words"])
    db.execute("insert into file values (?,?,?)", (name, stamp, len(rows["game"])))


def _columns(data: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...], set[str], str]:
    """A game's columns, its seats, kinds of verdicts and words, from its line on record; no objects
    are made of its turns, since games are many."""
    turns, facts, rewards = data["turns"], data["facts"], data["rewards"]
    learned = {turn["policy"] for turn in turns if turn.get("trainable")} | {MAIN}
    seats = tuple(
        (seat, policy, rewards.get(seat), policy in learned)
        for seat, policy in data["seating"].items()
    )
    verdicts = data["verdicts"]
    kinds = {verdict.get("kind") or verdict["status"] for verdict in verdicts}
    invalid = facts.get("invalid") if facts.get("end") == "invalid" else None
    columns = (
        *(data["id"], data["game"], data.get("group", "")),
        *(outcome(facts, rewards, data["void"]), data["void"]),
        *(None if invalid is None else str(invalid), len(turns)),
        sum(len(turn.get("token_ids", ())) for turn in turns),
    )
    texts = [text for turn in turns for text in (turn["text"], turn["prompt"])]
    texts += [f"{verdict.get('kind')} {verdict.get('detail')}" for verdict in verdicts]
    texts += [value for value in facts.values() if isinstance(value, str)]
    # A model may say half a surrogate pair, which no database can hold.
    text = "\n".join([*texts, data["void"] or ""]).encode("utf-8", "replace").decode()
    return columns, seats, kinds, text


@lru_cache(4096)
def _seating(seats: tuple[Any, ...]) -> tuple[int, str]:
    """A number for who sat where with which reward, and the same in JSON; a run has few of them."""
    digest = hashlib.blake2b(repr(seats).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1, json.dumps([seat[:3] for seat in seats])


def _forget(db: sqlite3.Connection, name: str) -> None:
    """Words and seatings stay: without games of their numbers they find nothing."""
    db.execute("delete from verdict where game in (select id from game where file = ?)", (name,))
    db.execute("delete from game where file = ?", (name,))
    db.execute("delete from file where name = ?", (name,))


def _row(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "title": game_name(row["game"]), "seats": json.loads(row["seats"])}


def _stamp(path: Path) -> str:
    try:
        stat = path.stat()
    except OSError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def _real(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
