// Package syncmock contains gomock mocks of the interfaces of package relaysync that users
// implement, for tests that check calls and arguments. For working implementations use packages
// relaytest and memstore.
//
//	store := syncmock.NewQuietStore(t) // answers every call like an empty store
//	store.EXPECT().Has(gomock.Any(), ids).Return([]bool{true}, nil)
//
// A mock of NewMockStore fails the test on each unexpected call. A mock of NewQuietStore answers all
// calls, and a test states only the calls that matter to it.
//
// After changing an interface, run go generate.
package syncmock

//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../store.go -destination=store.go -package=syncmock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../transport.go -destination=transport.go -package=syncmock -exclude_interfaces=Skimmer,Signer
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -imports=relaysync=github.com/graspsync/graspsync/sync -source=../policy.go -destination=policy.go -package=syncmock -exclude_interfaces=Holder,View,Rules
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod goimports -local github.com/graspsync/graspsync -w .
