"""``steelyard serve``: models that learn while they answer, over HTTP."""

from __future__ import annotations

import gc
import ipaddress
import logging
import signal
import socket
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from steelyard.cli.files import ANY_FILE
from steelyard.cli.options import address_options
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option, tell
from steelyard.exceptions import FileAccessError, FileFormatError, ParameterError

__all__ = ["serve_command"]

_TURN = 0.001  # seconds: a prediction waits no longer than that for a thread that learns
_KEYS = click.option(
    "--keys",
    "keys_file",
    type=ANY_FILE,
    metavar="FILE",
    help="Keys of clients; without them only this machine is served.",
)


def _need_service() -> None:
    try:
        import apsw  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ParameterError(
            f"the service needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[service]"',
        ) from error


@click.group("serve", invoke_without_command=True)
@click.option(
    "--store",
    default="steelyard.db",
    show_default=True,
    metavar="FILE.db",
    help="Or postgresql://HOST/DATABASE.",
)
@click.option(
    "--role",
    type=click.Choice(["learner", "predictor"]),
    default="learner",
    show_default=True,
    help="A predictor follows the process that learns; a second learner waits, if the store is PostgreSQL.",
)
@address_options
@_KEYS
@click.option(
    "--model",
    "specs",
    type=ANY_FILE,
    multiple=True,
    metavar="NAME.toml",
    help="Make this model, if it is not there.",
)
@click.option(
    "--log",
    "log_level",
    type=click.Choice(["problems", "requests"]),
    default="problems",
    show_default=True,
    help="What stderr tells: requests is one JSON line each, without contents of rows.",
)
@click.option("--check", is_flag=True, help="Open everything, say what is there, and stop.")
@click.option("--demo", is_flag=True, help="Feed a model from the built-in stream; the store is in memory.")
@click.pass_context
def serve_command(
    ctx: click.Context,
    *,
    store: str,
    role: str,
    host: str,
    port: int,
    keys_file: Path | None,
    specs: tuple[Path, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    log_level: str,
    check: bool,
    demo: bool,
) -> None:
    """Keep models that learn while they answer; what was acknowledged is never lost.

    A page at / shows how they fare. Stop it with Ctrl-C: what was sent is finished first.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = store
        return
    _need_service()
    _check_address(host, keys_file)
    from steelyard.service import Writer, open_store
    from steelyard.service.http import make_app
    from steelyard.service.http.keys import Keys

    keys = None if keys_file is None else Keys(keys_file)
    kept = open_store(":memory:" if demo else store)
    # Before anything is read: what another service writes meanwhile would be missed.
    leads = role == "learner" and not check and kept.acquire_write_lock()
    writer = Writer(kept, may_learn=role == "learner")
    wishes = [_wish(path) for path in specs]
    if leads:
        for wish in wishes:
            writer.process([wish])
            wish.future.result()
    elif specs and not check:
        tell("another process learns: it makes the models")
    if check:
        _tell_state(writer, kept.path)
        kept.close()
        return
    app = make_app(writer, keys=keys)
    if demo:
        from steelyard.service.demo import feed

        feed(writer)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    if log_level == "requests":
        logging.getLogger("steelyard.service").setLevel(logging.INFO)
    _listen(app, host, port, tls_cert, tls_key)


def _check_address(host: str, keys_file: Path | None) -> None:
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local and keys_file is None:
        raise ParameterError(
            f"without keys only this machine is served; --host is {host}.",
            hint="make keys first: steelyard serve keys add --keys keys.toml --scope admin",
        )


def _wish(path: Path) -> Any:
    """The wish for the model that a file describes."""
    from steelyard.service import Spec
    from steelyard.service.commands import Put

    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"this is not TOML: {error}.", source=str(path)) from error
    return Put(path.stem, Spec.from_mapping(values))


def _tell_state(writer: Any, store: str) -> None:
    rows = [
        {
            "model": name,
            "version": model.version,
            "rows": model.n_rows,
            "digest": model.summary()["digest"][:16],
        }
        for name, model in writer.published.items()
    ]
    tell(f"{store}: all is well; models: {len(rows)}")
    emit_table(["model", "version", "rows", "digest"], rows)


def _listen(app: Any, host: str, port: int, tls_cert: Path | None, tls_key: Path | None) -> None:
    import uvicorn

    from steelyard.service.http.protocol import LimitedProtocol

    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nobody's address is asked for
        ssl_certfile=None if tls_cert is None else str(tls_cert),
        ssl_keyfile=None if tls_key is None else str(tls_key),
        timeout_graceful_shutdown=10,
    )
    bound = config.bind_socket()
    # An answer leaves as it is written; else its second part waits 40 ms until the first is acknowledged.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.listen(config.backlog)  # whoever reads the address below can connect at once
    scheme = "http" if tls_cert is None else "https"
    shown = f"[{host}]" if ":" in host else host
    tell(f"serving at {scheme}://{shown}:{bound.getsockname()[1]}/  (Ctrl-C stops)")
    sys.setswitchinterval(_TURN)
    gc.freeze()  # what was loaded stays: to look through it again and again costs a tenth of all time
    signal.signal(signal.SIGTERM, _end)  # the server finishes first, then passes the signal on to this
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        tell("stopped; everything that was acknowledged is kept")


def _end(*_: object) -> None:
    raise SystemExit(0)


# -- keys -------------------------------------------------------------------------------------------


@serve_command.group("keys")
def keys_command() -> None:
    """Keys of clients: add, list, revoke."""


@keys_command.command("add")
@click.option("--keys", "keys_file", type=ANY_FILE, required=True, metavar="FILE")
@click.option("--scope", "scopes", multiple=True, required=True, metavar="predict|learn|forget|site|admin")
@click.option("--for-model", "models", multiple=True, metavar="NAME", help="Only these; all by default.")
@click.option("--for-site", "sites", multiple=True, metavar="NAME", help="Speak for these sites only.")
@click.option("--note", default="", metavar="TEXT", help="Whose key it is.")
@json_option
def add_key(
    *,
    keys_file: Path,
    scopes: tuple[str, ...],
    models: tuple[str, ...],
    sites: tuple[str, ...],
    note: str,
    as_json: bool,
) -> None:
    """Make a key. It is shown once; the file keeps only its hash."""
    from steelyard.service.http.keys import Keys

    key, token = Keys.add(keys_file, scopes, models or ("*",), note, sites or ("*",))
    shown = {"id": key.id, "key": token, "scopes": list(key.scopes), "models": list(key.models)}
    if sites:
        shown["sites"] = list(key.sites)
    emit_json(shown) if as_json else emit_pairs(shown)


@keys_command.command("list")
@click.option("--keys", "keys_file", type=ANY_FILE, required=True, metavar="FILE")
@json_option
def list_keys(*, keys_file: Path, as_json: bool) -> None:
    """Name the keys of a file."""
    from steelyard.service.http.keys import Keys

    rows = [
        {"id": k.id, "scopes": ",".join(k.scopes), "models": ",".join(k.models), "note": k.note}
        for k in Keys(keys_file).all()
    ]
    emit_json(rows) if as_json else emit_table(["id", "scopes", "models", "note"], rows)


@keys_command.command("revoke")
@click.argument("key_id", metavar="ID")
@click.option("--keys", "keys_file", type=ANY_FILE, required=True, metavar="FILE")
def revoke_key(*, key_id: str, keys_file: Path) -> None:
    """Take a key away; a running service notices at the next request."""
    from steelyard.service.http.keys import Keys

    Keys.revoke(keys_file, key_id)
    tell(f"revoked {key_id}")


# -- backups ----------------------------------------------------------------------------------------


def _file_of(store: str) -> Path:
    if "://" in store:
        raise ParameterError(
            "only stores that are files are copied here.",
            hint="PostgreSQL has its own means: pg_dump --schema=steelyard, pg_restore",
        )
    return Path(store)


@serve_command.command("backup")
@click.argument("target", type=ANY_FILE)
@click.pass_obj
def backup_command(store: str, *, target: Path) -> None:
    """Copy the store to TARGET while the service runs or not."""
    _need_service()
    from steelyard.service import SQLiteStore

    if not _file_of(store).exists():
        raise FileAccessError("there is no such store.", source=store, hint="name it with --store")
    if target.exists():
        raise FileAccessError("this file is there already.", source=str(target), hint="choose another name")
    source = SQLiteStore(store)
    try:
        source.backup(target)
    finally:
        source.close()
    tell(f"copied {store} to {target}")


@serve_command.command("restore")
@click.argument("source", type=ANY_FILE)
@click.pass_obj
def restore_command(store: str, *, source: Path) -> None:
    """Make the store from a backup; every model is recovered once to see that it is whole."""
    _need_service()
    from steelyard.service import SQLiteStore, Writer

    if _file_of(store).exists():
        raise FileAccessError("the store is there already.", source=store, hint="move it away first")
    if not source.exists():
        raise FileAccessError("there is no such file.", source=str(source))
    backup = SQLiteStore(source)
    try:
        n_models = len(Writer(backup).published)
        backup.backup(store)
    finally:
        backup.close()
    tell(f"models restored to {store}: {n_models}")
