# Runs Python on the interpreter of Ray's own workers; `python` on a job's PATH may be another.
# Ray starts a job as a child of a worker, which is a child of the raylet, which was told which.
parent() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null; }
raylet=$(parent "$PPID")
python=$(tr '\0' '\n' <"/proc/${raylet:-none}/cmdline" 2>/dev/null |
    sed -n 's/^--python_worker_command="\{0,1\}\([^" ]*\).*/\1/p')
[ -x "$python" ] || python=$(command -v python || command -v python3)
# A cluster that a script started in the background ignores SIGINT, and so would the job, which is
# stopped by it; only another program than a shell can undo that.
exec "$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])' "$@"
