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
    with listening(binary, *arguments, patience=patience) as (base, process):
        wait_until_ready(base, process, patience)
        yield base, process
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            sys.exit(f"the server ended with status {process.returncode}:\n" + "".join(process.log[-20:]))


@contextlib.contextmanager
def listening(binary, *arguments, patience=120):
    """The address of a server as soon as it listens, and its process; the lines of its log are the process's `log`."""
    process = subprocess.Popen([binary, "serve", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True)
    process.log, found = [], threading.Event()

    def read():
        for line in process.stderr:
            process.log.append(line)
            if "listening on http://" in line:
                found.set()
        found.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        found.wait(patience)
        match = re.search(r"listening on (http://\S+)", "".join(process.log))
        if not match:
            sys.exit("the server did not start:\n" + "".join(process.log))
        yield match[1], process
    finally:
        process.kill()


def wait_until_ready(base, process, patience=120):
    end = time.time() + patience
    while True:
        try:
            return urllib.request.urlopen(base + "/ready", timeout=5).read()
        except urllib.error.HTTPError as e:
            state = e.read().decode()
        except OSError as e:
            state = str(e)
        if time.time() > end or '"failed"' in state or process.poll() is not None:
            sys.exit(f"the server is not ready: {state}\n" + "".join(process.log))
        time.sleep(0.1)
