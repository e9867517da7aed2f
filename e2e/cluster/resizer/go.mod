module shardwright.test/cluster/resizer

go 1.26.0
