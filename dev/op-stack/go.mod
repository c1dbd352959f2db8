module batch-query-service/op-stack

go 1.26.0

require (
	github.com/ethereum-optimism/op-geth v1.101702.3
	github.com/ethereum-optimism/optimism v1.19.6
)
