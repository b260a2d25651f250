// Package museum checks that the tests can fail. It inserts known bugs, one by one, into a copy of
// the module and runs the tests that must catch them.
//
//	go test ./cmd/internal/museum -v -museum -timeout 90m             # all exhibits
//	go test ./cmd/internal/museum -v -museum -timeout 90m -parallel 1 # one at a time
//	go test ./cmd/internal/museum -v -museum -run /until
//
// An exhibit replaces a text that must occur exactly once in the code. This is checked without
// -museum too, so that changes of the code do not disable exhibits unnoticed. A bug is caught if
// the changed module compiles and its tests fail with the expected message. First the same tests
// must pass in an unchanged copy.
package museum
