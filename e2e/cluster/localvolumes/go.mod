module shardwright.test/cluster/localvolumes

go 1.26.0
