"""Starts `shardwright serve`, waits until it is ready, ends it."""
import contextlib, re, signal, subprocess, sys, threading, time, urllib.error, urllib.request


@contextlib.contextmanager
def serve(binary, *arguments, patience=120):
    """The address of a server that runs while the context lasts. It must end with status 0."""
    with process_of(binary, *arguments, patience=patience) as (base, _):
        yield base


@contextlib.contextmanager
def process_of(binary, *arguments, patience=120):
    """The same, with its process."""
    process = subprocess.Popen([binary, "serve", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True)
    lines, found = [], threading.Event()

    def read():
        for line in process.stderr:
            lines.append(line)
            if "listening on http://" in line:
                found.set()
        found.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        found.wait(patience)
        match = re.search(r"listening on (http://\S+)", "".join(lines))
        if not match:
            sys.exit("the server did not start:\n" + "".join(lines))
        base, end = match[1], time.time() + patience
        while True:
            try:
                urllib.request.urlopen(base + "/ready", timeout=5).read()
                break
            except urllib.error.HTTPError as e:
                state = e.read().decode()
            if time.time() > end or '"failed"' in state or process.poll() is not None:
                sys.exit(f"the server is not ready: {state}\n" + "".join(lines))
            time.sleep(0.1)
        yield base, process
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            sys.exit(f"the server ended with status {process.returncode}:\n" + "".join(lines[-20:]))
    finally:
        process.kill()
