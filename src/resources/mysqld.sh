# The container's first process. mysqld is not told to end while a client waits: told so while no replica is connected, it says OK to every
# commit that waits for an acknowledgement ("SEMISYNC: Forced shutdown"), and no other server has it (rule P3). So clients are cut off
# first, and it ends by the next statement of the same session. One that cannot be asked is killed: it tells nobody OK, and recovers.
end() {
  ending=yes
  [ -n "${mysqld:-}" ] || exit 0
  timeout 5 mysql --defaults-file=/etc/shardwright/client.cnf --execute='SET GLOBAL offline_mode = ON; SHUTDOWN' 2>/dev/null ||
    kill -KILL "$mysqld" 2>/dev/null
}
trap end TERM
# mysqld takes RESTART, and the end of a CLONE, only when it knows that somebody starts it again: the process whose number this is. (Two
# dollars are one in a Pod's command.) It ends with 16 then, and is started here: a kubelet would wait for longer each time.
me=$(exec sh -c 'echo "$PPID"')
MYSQLD_PARENT_PID=$me "$@" &
mysqld=$!
# A signal ends a wait, and not what is waited for; what mysqld ended with meanwhile is asked for once more (127: it was told before).
while :; do
  wait "$mysqld"
  code=$?
  kill -0 "$mysqld" 2>/dev/null && continue
  wait "$mysqld" 2>/dev/null
  again=$?
  [ "$again" = 127 ] || code=$again
  [ "$code" = 16 ] && [ -z "${ending:-}" ] || exit "$code"
  MYSQLD_PARENT_PID=$me "$@" &
  mysqld=$!
  [ -z "${ending:-}" ] || end
done
