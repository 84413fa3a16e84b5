# shellcheck shell=bash
# Steps, logs and messages shared by scripts/quickstart and scripts/test.
# To be sourced from a script that has set -euo pipefail; sets no shell options itself.

# apt runs programs of the sbin folders, which not every shell has in its PATH.
export PATH="$PATH:/usr/sbin:/sbin"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv="$root/.venv"
deps="$root/.deps"
logs="$root/logs"
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
# A compiler that reads torch's headers takes up to 2 GB: no more of them than fit into memory.
jobs=${CLEBSCH_JOBS:-$(awk -v cores="$cores" '/^MemAvailable/ {n = int($2 / 2e6); print n < 1 ? 1 : n < cores ? n : cores}' /proc/meminfo)}
# A second checkout can then share the first one's compiler cache, if there is ccache at all.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root}
# Stamps of what lives in .venv live in .venv too, so that deleting it forgets both.
stamps="$venv/.steps"

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  trap - EXIT
  stop_watch
  stop_meanwhile
  printf '\nerror: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# The running step's description, log and advice; read by the EXIT trap when a command fails.
step_what='' step_log='' step_hint=''
# Set where the last command speaks for itself when it fails.
speaks_for_itself=''
watcher=''

stop_watch() {
  if [[ -n $watcher ]]; then
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    watcher=''
  fi
}

on_exit() {
  local rc=$?
  trap - EXIT
  stop_watch
  stop_meanwhile
  if ((rc != 0)) && [[ -n $step_what ]]; then
    if ((rc == 130 || rc == 143)); then
      printf '\nInterrupted during: %s\nRun the same command again; finished steps are kept.\n' "$step_what" >&2
    else
      if [[ -s $step_log ]]; then
        printf '\n  last lines of %s:\n' "$step_log" >&2
        tail -n 20 "$step_log" | sed 's/^/  | /' >&2
      fi
      printf '\nerror: failed (exit status %d): %s\n' "$rc" "$step_what" >&2
      printf '       log: %s\n' "$step_log" >&2
      if [[ -n $step_hint ]]; then printf '       what to do: %s\n' "$step_hint" >&2; fi
      printf '       then run the same command again; finished steps are kept.\n' >&2
    fi
  fi
  if ((rc != 0)) && [[ -z $step_what && -z $speaks_for_itself ]]; then
    printf '\nerror: stopped unexpectedly between two steps (exit status %d); bash -x %s shows where\n' "$rc" "$0" >&2
  fi
  exit "$rc"
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# meanwhile COMMAND...: begins steps that nothing needs yet beside those that follow: downloads beside compilers. They are
# called once more in their turn, after `end_meanwhile`, and are then done, or fail with their message.
behind=''
meanwhile() {
  mkdir -p "$logs"
  set -m # a process group of its own, which on_exit ends as a whole
  (set +m; "$@") >"$logs/meanwhile.log" 2>&1 </dev/null &
  behind=$!
  set +m
}
end_meanwhile() {
  [[ -z $behind ]] || wait "$behind" || true
  behind=''
}
stop_meanwhile() {
  [[ -z $behind ]] || kill -- "-$behind" 2>/dev/null || true
  behind=''
}

# Processor seconds of all that this script has started and waited for: the kernel's count for its children.
processor_seconds() { sed 's/.*) //' "/proc/$$/stat" | awk -v ticks="$(getconf CLK_TCK)" '{printf "%.0f", ($14 + $15) / ticks}'; }

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# What the screen shows of a growing log: its last line. A step may set `progress` to a function of its own.
last_line() {
  tail -c 4000 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 |
    sed -E 's,Building ([A-Z]+) object .*/,Building \1 ,'
}
progress=last_line

# Prints the progress in a growing log every few seconds: one moving line on a terminal, else a line
# when it has changed, less often, so that a CI log stays readable.
watch_log() {
  local log=$1 start=$SECONDS pause=20 last='' line
  [[ -t 1 ]] && pause=2
  # The sleep outlives a killed watcher: without the redirection it would hold a pipe open.
  while sleep "$pause" >/dev/null 2>&1; do
    line=$("$progress" "$log" | cut -c 1-100) || true
    if [[ -t 1 ]]; then
      printf '\r\033[K   %s  %s' "$(clock $((SECONDS - start)))" "$line"
    elif [[ $line != "$last" ]]; then
      printf '   %s  %s\n' "$(clock $((SECONDS - start)))" "$line"
      last=$line
    fi
  done
}

# run_logged NAME WHAT HINT COMMAND...: runs a command (or function) with its output in
# logs/NAME.log and signs of life on the screen. A failure ends the script through on_exit.
# The command is not part of a condition: bash would switch off set -e inside it.
run_logged() {
  local name=$1 start=$SECONDS processor
  processor=$(processor_seconds)
  step_what=$2 step_hint=$3 step_log="$logs/$1.log"
  shift 3
  mkdir -p "$logs"
  say "-> $step_what"
  : >"$step_log"
  watch_log "$step_log" &
  watcher=$!
  ("$@") >>"$step_log" 2>&1
  stop_watch
  [[ -t 1 ]] && printf '\r\033[K'
  say "   done in $(clock $((SECONDS - start))), $(($(processor_seconds) - processor)) s of processor time (log: logs/$name.log)"
  step_what=''
}

# stamped NAME KEY WHAT HINT COMMAND...: run_logged, unless the step was finished with the same
# KEY before. The stamp is removed first and written last: an interrupted step runs again.
stamped() {
  local name=$1 key=$2 what=$3 stamp="$stamps/$1"
  if [[ -f $stamp && $(<"$stamp") == "$key" ]]; then
    say "-- already done: $what"
    return 0
  fi
  rm -f "$stamp"
  run_logged "$name" "$what" "$4" "${@:5}"
  mkdir -p "$stamps"
  printf '%s' "$key" >"$stamp"
}

# key_of FILE ... -- WORD ...: a key from the contents of files and from words.
key_of() {
  local files=()
  while (($#)) && [[ $1 != -- ]]; do
    files+=("$1")
    shift
  done
  (($#)) && shift
  { ((${#files[@]})) && cat -- "${files[@]}"; printf '%s\n' "$@"; } | sha256sum | cut -d ' ' -f 1
}
