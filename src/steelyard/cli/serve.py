"""``steelyard serve``: HTTP service with models that learn and predict at the same time."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import ANY_FILE, read_file
from steelyard.cli.output import emit_facts, emit_json, emit_table, print_message
from steelyard.cli.runs import parse_seconds
from steelyard.exceptions import FileAccessError, FileFormatError, ParameterError

_SWITCH_SECONDS = 0.001  # maximum time that a prediction waits for the GIL while another thread learns
_SHUTDOWN_SECONDS = 10  # time limit for finishing requests in progress


def _check_installed() -> None:
    try:
        import apsw  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ParameterError(
            f"the service needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[service]"',
        ) from error


@opt.command("serve", cls=click.Group, invoke_without_command=True)
@click.pass_context
def serve_command(
    ctx: click.Context,
    *,
    store: str = opt.option("SQLite file, or postgresql://HOST/DATABASE.", "FILE.db", default="steelyard.db"),
    role: str = opt.choice(
        "A predictor only predicts, with the models of the learner. With PostgreSQL, several learners "
        "share the models.",
        ("learner", "predictor"),
        default="learner",
    ),
    advertise: str | None = opt.option(
        "Address at which other learners reach this one. Default: host and port.", "URL"
    ),
    address: opt.AddressOptions = opt.address,
    keys_file: Path | None = opt.option(
        "API keys of clients. Without keys only local connections are accepted.",
        "FILE",
        type=ANY_FILE,
        names="--keys",
    ),
    specs: tuple[Path, ...] = opt.option(
        "File that describes a model, which is created unless it exists.",
        "NAME.toml",
        type=ANY_FILE,
        multiple=True,
        names="--model",
    ),
    log_level: str = opt.choice(
        "Log warnings and errors to standard error, or also one JSON line per request, without row values.",
        ("problems", "requests"),
        names="--log",
        default="problems",
    ),
    log_format: str = opt.choice(
        "Format of warnings and errors: text, or one JSON object per line.", ("text", "json"), default="text"
    ),
    audit_days: float = opt.option(
        "Days for which the audit log is kept.",
        "DAYS",
        type=click.FloatRange(0.0, min_open=True),
        default=90.0,
    ),
    check: bool = opt.flag("Load all models, list damaged ones and exit with code 1 if there are any."),
    repair: bool = opt.flag("With --check: rebuild damaged models from their readable rows."),
    demo: bool = opt.flag("Train a model on the built-in stream; the store is in memory."),
) -> None:
    """Serve models that learn and predict over HTTP. Acknowledged rows survive a crash.

    The page at / shows the state of all models. Ctrl-C finishes the requests in progress and stops.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = store
        return
    _check_installed()
    host, port, tls_cert, tls_key = astuple(address)
    _check_address(host, keys_file)
    if tls_key is not None and tls_cert is None:
        raise click.UsageError("--tls-key needs the certificate of the key: --tls-cert FILE.")
    if demo and (keys_file or tls_cert):
        raise ParameterError(
            "--demo sends its rows without a key and without TLS.", hint="leave out --keys and --tls-cert."
        )
    from steelyard.brokers.consumer import consumers_of
    from steelyard.service import Writer, open_store
    from steelyard.service.http import make_app
    from steelyard.service.http.keys import Keys

    keys = None if keys_file is None else Keys(keys_file)
    _configure_logging(log_format, log_level)
    created = [_create_command(path) for path in specs]
    with open_store(":memory:" if demo else store) as opened:
        # Acquire the lock before reading the store; otherwise a write by another process could be missed.
        leads = role == "learner" and (not check or repair) and opened.acquire_write_lock()
        writer = Writer(opened, may_learn=role == "learner", audit_days=audit_days)
        if leads:
            _create_models(writer, [command for command, _ in created])
        elif specs and not check:
            print_message("another process is the learner and creates the models")
        if check:
            _check(writer, repair=repair)
            return
        feeds = {command.model: topics for command, topics in created if topics is not None}
        app = make_app(writer, keys=keys, consumers=consumers_of(writer, feeds))

        def announce(url: str) -> None:
            """Publish the address of this process, and start the demonstration if requested."""
            opened.advertise(advertise or url)
            if demo:
                from steelyard.service.demo import feed

                feed(url)

        _listen(app, host, port, (tls_cert, tls_key), announce)


def _configure_logging(log_format: str, log_level: str) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    if log_format == "json":
        from steelyard.service.system import JsonFormatter

        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    if log_level == "requests":
        logging.getLogger("steelyard.service").setLevel(logging.INFO)


def _create_models(writer: Any, commands: list[Any]) -> None:
    from steelyard.service.errors import Unavailable

    for command in commands:
        writer.process([command])
        error = command.future.exception()
        if isinstance(error, Unavailable):
            print_message(f"{command.model}: {error.summary}")
        elif error is not None:
            raise error


def _check_address(host: str, keys_file: Path | None) -> None:
    from steelyard.service.system import is_local

    if not is_local(host) and keys_file is None:
        raise ParameterError(
            f"without keys only local connections are accepted; --host is {host}.",
            hint="create a key first: steelyard serve keys add --keys keys.toml --scope admin",
        )


def _create_command(path: Path) -> tuple[Any, Any]:
    """Return the command that creates the model described by a TOML file, and the model's topics or None."""
    from steelyard.brokers.consumer import split_settings
    from steelyard.service import Spec
    from steelyard.service.commands import Put

    try:
        values = tomllib.loads(read_file(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"this is not TOML: {error}.", source=str(path)) from error
    values, topics = split_settings(values)
    return Put(path.stem, Spec.from_mapping(values)), topics


def _check(writer: Any, *, repair: bool) -> None:
    """Print all models and the reasons of damaged models; repair damaged models if ``repair`` is true."""
    damaged = dict(writer.damaged)
    for name, reason in damaged.items():
        print_message(f"the model {name!r} is damaged: {reason}")
        if repair:
            found = writer.repair(name)
            print_message(f"repaired {name!r} (rows kept: {found['kept']:,}, lost: {found['lost']:,})")
    rows = [
        {
            "model": name,
            "version": model.version,
            "rows": model.n_rows,
            "digest": model.summary()["digest"][:16],
        }
        for name, model in writer.published.items()
    ]
    problems = f"damaged models: {len(writer.damaged)}" if writer.damaged else "no problems found"
    print_message(f"{writer.store.path}: {problems}; models: {len(rows)}")
    emit_table(["model", "version", "rows", "digest"], rows)
    if writer.damaged:
        raise SystemExit(1)


def _listen(
    app: Any, host: str, port: int, tls: tuple[Path | None, Path | None], announce: Callable[[str], None]
) -> None:
    """Run the service until it is stopped. ``announce`` is called with its address."""
    import ssl

    import uvicorn

    from steelyard.service.http.protocol import LimitedProtocol

    for path in tls:
        if path is not None:
            read_file(path)  # an error names the file, unlike that of OpenSSL
    tls_cert, tls_key = tls
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # proxy headers are not trusted, because any client could send them
        ssl_certfile=None if tls_cert is None else str(tls_cert),
        ssl_keyfile=None if tls_key is None else str(tls_key),
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    try:
        config.load()
    except ssl.SSLError as error:
        raise FileFormatError(
            f"the TLS certificate and its private key cannot be used: {error.reason or error}.",
            source=str(tls_cert),
            hint="both are PEM files; give the key with --tls-key unless the certificate's file contains it",
        ) from error
    if tls_cert is not None:
        signal.signal(signal.SIGHUP, lambda *_: _reload_certificate(config))
    try:  # the socket listens before the address is printed, so that clients can connect at once
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=config.backlog)
    except OSError as error:
        # socket.create_server() adds "(while attempting to bind on address ...)" to the reason.
        reason = str(error.strerror or error).partition(" (while")[0].lower()
        raise ParameterError(
            f"the service cannot listen at {host}, port {port}: {reason}.",
            hint="choose a free port with --port (0 for any), or an address of this machine with --host",
        ) from error
    # Without TCP_NODELAY, the second packet of a response waits 40 ms for the acknowledgement of the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    scheme = "http" if tls_cert is None else "https"
    shown = f"[{host}]" if ":" in host else host
    address = f"{scheme}://{shown}:{bound.getsockname()[1]}"
    announce(address)
    print_message(f"serving at {address}/ (Ctrl-C stops)")
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # loaded modules and models stay alive, and scanning them took a tenth of the running time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn shuts down and then calls this handler
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        print_message("stopped; all acknowledged rows are saved")


def _reload_certificate(config: Any) -> None:
    """Reload the TLS certificate for new connections. If it is invalid, log this and keep the old one."""
    import ssl

    log = logging.getLogger("steelyard.service")
    try:
        # The files are tested in a new context, because a certificate without its key must not be used.
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config.ssl):
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except (OSError, ssl.SSLError) as error:
        log.warning("the certificate could not be loaded, the old one stays: %s", type(error).__name__)
    else:
        log.warning("the certificate was loaded again")


# -- commands for API keys --------------------------------------------------------------------------

_keys_option: Any = opt.option("File with the keys.", "FILE", type=ANY_FILE, required=True, names="--keys")


@opt.command("keys", serve_command, cls=click.Group)
def keys_command() -> None:
    """Manage the API keys of clients."""


@opt.command("add", keys_command)
def add_key(
    keys_file: Path = _keys_option,
    scopes: tuple[str, ...] = opt.option(
        "Allowed operation.", "predict|learn|forget|site|admin", multiple=True, required=True, names="--scope"
    ),
    models: tuple[str, ...] = opt.option(
        "Allowed models. Default: all.", "NAME", multiple=True, names="--for-model"
    ),
    sites: tuple[str, ...] = opt.option(
        "Allowed sites. Default: all.", "NAME", multiple=True, names="--for-site"
    ),
    note: str = opt.option("Owner of the key.", "TEXT", default=""),
    expires: str | None = opt.option("Time until the key expires. Default: never.", "90d"),
    rate: float | None = opt.option("Requests per second. Default: no limit.", "N", type=float),
    as_json: bool = opt.as_json,
) -> None:
    """Create a key and print it. It cannot be printed again, because the file stores only its hash."""
    from steelyard.service.http.keys import Keys

    key, token = Keys.add(
        keys_file, scopes, models or ("*",), note, sites or ("*",), expires=_later(expires), rate=rate
    )
    emit_facts(_shown_key(key, token), as_json=as_json)


def _shown_key(key: Any, token: str) -> dict[str, Any]:
    shown = {"id": key.id, "key": token, "scopes": list(key.scopes), "models": list(key.models)}
    if key.sites != ("*",):
        shown["sites"] = list(key.sites)
    optional = {"expires": _date(key.expires) or None, "rate": key.rate}
    return shown | {name: value for name, value in optional.items() if value is not None}


def _later(duration: str | None) -> float | None:
    """Return the time, in seconds since 1970, after a duration such as "90d" from now."""
    if duration is None:
        return None
    seconds = parse_seconds(duration)
    if seconds is None:
        raise ParameterError(f"expected a time such as 90d (units s, m, h, d, w); got {duration!r}.")
    return time.time() + seconds


def _date(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@opt.command("rotate", keys_command)
def rotate_key(
    key_id: str = opt.argument(metavar="ID"),
    keys_file: Path = _keys_option,
    overlap: str = opt.option("Time until the old key expires.", "7d", default="7d"),
    expires: str | None = opt.option("Time until the new key expires. Default: never.", "90d"),
    as_json: bool = opt.as_json,
) -> None:
    """Create a key with the same rights as the key ID. The old key expires after the overlap."""
    from steelyard.service.http.keys import Keys

    until = _later(overlap)
    assert until is not None
    key, token = Keys.rotate(keys_file, key_id, until, _later(expires))
    emit_facts(_shown_key(key, token), as_json=as_json)


@opt.command("list", keys_command)
def list_keys(keys_file: Path = _keys_option, as_json: bool = opt.as_json) -> None:
    """List the keys of a file."""
    from steelyard.service.http.keys import Keys

    rows = [
        {
            "id": key.id,
            "scopes": ",".join(key.scopes),
            "models": ",".join(key.models),
            "expires": _date(key.expires),
            "note": key.note,
        }
        for key in Keys(keys_file).all()
    ]
    emit_json(rows) if as_json else emit_table(["id", "scopes", "models", "expires", "note"], rows)


@opt.command("revoke", keys_command)
def revoke_key(key_id: str = opt.argument(metavar="ID"), keys_file: Path = _keys_option) -> None:
    """Revoke a key; a running service rejects it from the next request on."""
    from steelyard.service.http.keys import Keys

    Keys.revoke(keys_file, key_id)
    print_message(f"revoked {key_id}")


# -- command for the audit log ----------------------------------------------------------------------


@opt.command("audit", serve_command)
@click.pass_obj
def audit_command(
    store: str,
    *,
    model: str | None = opt.option("Only this model.", "NAME"),
    verb: str | None = opt.option("Show only this operation.", "learn|forget|..."),
    key: str | None = opt.option("Only this key.", "ID"),
    limit: int = opt.option("Number of entries.", "N", type=int, default=50),
    as_json: bool = opt.as_json,
) -> None:
    """List the latest changes of a store: who changed which model, when, and with what outcome."""
    _check_installed()
    from steelyard.service import open_store
    from steelyard.service.audit import AuditEntry, AuditLog

    _check_exists(store)
    given: dict[str, Any] = {name: x for name, x in (("verb", verb), ("key", key)) if x is not None}
    with open_store(store) as opened:
        entries, _ = AuditLog(opened).read(model=model, limit=limit, **given)
    rows = [{**entry._asdict(), "at": _date(entry.at)} for entry in entries]
    emit_json(rows) if as_json else emit_table(AuditEntry._fields, rows)


# -- commands for backups ---------------------------------------------------------------------------


def _check_exists(store: str) -> None:
    if "://" not in store and not Path(store).exists():
        raise FileAccessError("this store does not exist.", source=store, hint="pass the store with --store")


def _check_is_file(store: str) -> None:
    if "://" in store:
        raise ParameterError(
            "backup and restore need a store that is a file.",
            hint="for PostgreSQL use pg_dump --schema=steelyard and pg_restore",
        )


@opt.command("backup", serve_command)
@click.pass_obj
def backup_command(store: str, *, target: Path = opt.argument(type=ANY_FILE)) -> None:
    """Copy the store to TARGET; the service may be running."""
    _check_installed()
    from steelyard.service import SQLiteStore

    _check_is_file(store)
    _check_exists(store)
    if target.exists():
        raise FileAccessError("this file exists already.", source=str(target), hint="choose another name")
    with SQLiteStore(store) as source:
        source.backup(target)
    print_message(f"copied {store} to {target}")


@opt.command("erase", serve_command)
@click.pass_obj
def erase_command(store: str) -> None:
    """Remove the bytes of forgotten rows from the disk.

    In PostgreSQL this rewrites all tables, and the service waits meanwhile.
    """
    _check_installed()
    from steelyard.service import open_store

    with open_store(store) as opened:
        opened.rewrite_tables()
    print_message(f"erased the freed space of {store}")


@opt.command("restore", serve_command)
@click.pass_obj
def restore_command(store: str, *, source: Path = opt.argument(type=ANY_FILE)) -> None:
    """Create the store from a backup; every model is loaded once to check it."""
    _check_installed()
    from steelyard.service import SQLiteStore, Writer

    _check_is_file(store)
    if Path(store).exists():
        raise FileAccessError("this store exists already.", source=store, hint="move it away first")
    if not source.exists():
        raise FileAccessError("this file does not exist.", source=str(source))
    with SQLiteStore(source) as backup:
        n_models = len(Writer(backup).published)
        backup.backup(store)
    print_message(f"restored {n_models} models to {store}")
