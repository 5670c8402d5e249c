module github.com/ringway/ringway/sims/compare

go 1.26.0

replace github.com/ringway/ringway => ../..

require (
	github.com/go-kratos/kratos/v2 v2.8.3
	github.com/ringway/ringway v0.0.0-00010101000000-000000000000
	google.golang.org/grpc v1.85.0
)

require (
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
