// Package syncmock contains gomock mocks of the interfaces of package relaysync, for tests that
// check calls and arguments. For working implementations use packages relaytest and memstore.
//
//	ctrl := gomock.NewController(t)
//	store := syncmock.NewMockStore(ctrl)
//	store.EXPECT().Has(gomock.Any(), ids).Return([]bool{true}, nil)
//
// After changing an interface, run go generate.
package syncmock

//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../store.go -destination=store.go -package=syncmock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../transport.go -destination=transport.go -package=syncmock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../policy.go -destination=policy.go -package=syncmock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../rules.go -destination=rules.go -package=syncmock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../verify.go -destination=verify.go -package=syncmock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod goimports -local github.com/graspsync/graspsync -w .
