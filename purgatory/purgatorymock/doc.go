// Package purgatorymock has gomock mocks of the interfaces of package purgatory, for
// tests that ask whether something was called, and with what. For repositories and
// servers that behave use package fetchtest.
//
//	ctrl := gomock.NewController(t)
//	relay := purgatorymock.NewMockRelay(ctrl)
//	relay.EXPECT().Save(gomock.Any(), event).Return(nil)
//
// The mocks are generated; run go generate after changing an interface.
package purgatorymock

//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -source=../interfaces.go -destination=mocks.go -package=purgatorymock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod goimports -local github.com/graspsync/graspsync -w .
