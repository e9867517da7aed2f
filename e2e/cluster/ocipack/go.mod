module shardwright.test/cluster/ocipack

go 1.26.0
