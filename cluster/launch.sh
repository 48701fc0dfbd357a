# Runs Python on the interpreter of Ray's workers; `python` on a job's PATH may be another one.
# A job is a descendant of the raylet, whose command line names that interpreter.
parent() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null; }
pid=$PPID
python=
while [ "${pid:-0}" -gt 1 ] && [ -z "$python" ]; do
    python=$(tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null |
        sed -n 's/^--python_worker_command="\{0,1\}\([^" ]*\).*/\1/p')
    pid=$(parent "$pid")
done
[ -x "$python" ] || python=$(command -v python || command -v python3)
# A cluster that was started in the background ignores SIGINT, and its jobs inherit that. A shell
# cannot restore the default, so that SIGINT stops the job; Python can.
exec "$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])' "$@"
