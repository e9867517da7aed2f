# While this server takes writes, the operator gets 25 seconds to hand over to the other one: it sees that the Pod is being deleted, and
# closes this server for that. Closed five times in a row, for two seconds, means that it was handed over, and not opened again at once because
# that failed; and that clients were told so (1290) and have gone where the Service leads to by then: who is cut off in the middle of a
# statement cannot tell whether it was done. A server that cannot be asked, twice in a row, is not waited for.
end=$(($(date +%s) + 25))
closed=0
while :; do
  read_only=$(timeout 3 mysql --defaults-file=/etc/shardwright/client.cnf --batch --skip-column-names \
    --execute='SELECT @@GLOBAL.read_only' 2>/dev/null)
  case "$read_only" in
    0) closed=0 ;;
    1) closed=$((closed + 1)) ;;
    *) closed=$((closed + 3)) ;;
  esac
  if [ "$closed" -ge 5 ] || [ "$(date +%s)" -ge "$end" ]; then exit 0; fi
  sleep 0.5
done
