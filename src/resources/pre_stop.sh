# A process that is the first of its container never hears of a SIGTERM that comes before it has asked for it, and mysqld asks late in its
# start: the Pod would hang until it is killed. So the signal waits until mysqld has it blocked, to take it in a thread of its own.
while :; do
  while IFS= read -r line; do
    case "$line" in SigBlk:*[4567cdef]???) break 2 ;; esac
  done </proc/1/status
  sleep 0.1
done
