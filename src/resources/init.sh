set -eu
cd /var/lib/mysql
if [ -d data ]; then
  exit 0
fi
# What an interrupted start left behind.
rm -rf data.new
mysqld --defaults-file="/etc/shardwright/$POD_NAME.cnf" --initialize-insecure --skip-log-bin --datadir=/var/lib/mysql/data.new
sync -f data.new
mv data.new data
