# While this server takes writes, the operator gets 25 seconds to hand over to the other one: it sees that the Pod is being deleted, and
# closes this server for that. Closed twice in a row means that it was handed over, and not opened again at once because that failed.
# A server that cannot be asked is not waited for.
end=$(($(date +%s) + 25))
closed=0
while :; do
  read_only=$(timeout 3 mysql --defaults-file=/etc/shardwright/client.cnf --batch --skip-column-names \
    --execute='SELECT @@GLOBAL.read_only' 2>/dev/null)
  if [ "$read_only" = 0 ]; then closed=0; else closed=$((closed + 1)); fi
  if [ "$closed" -ge 2 ] || [ "$(date +%s)" -ge "$end" ]; then exit 0; fi
  sleep 0.5
done
