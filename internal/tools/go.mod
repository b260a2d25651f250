// Tools for working on graspsync, kept out of the module that programs embed.
module github.com/graspsync/graspsync/internal/tools

go 1.26.0

tool (
	go.uber.org/mock/mockgen
	golang.org/x/tools/cmd/goimports
)

require (
	go.uber.org/mock v0.6.0 // indirect
	golang.org/x/mod v0.27.0 // indirect
	golang.org/x/sync v0.16.0 // indirect
	golang.org/x/tools v0.36.0 // indirect
)
