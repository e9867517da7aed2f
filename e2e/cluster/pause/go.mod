module shardwright.test/cluster/pause

go 1.26.0
