// Package museum shows that the tests can fail: it puts known bugs back, one by one,
// into a copy of the module, and runs the tests that must catch them.
//
//	go test ./cmd/internal/museum -v -museum -timeout 90m             # all exhibits
//	go test ./cmd/internal/museum -v -museum -timeout 90m -parallel 1 # one at a time
//	go test ./cmd/internal/museum -v -museum -run /until
//
// An exhibit replaces one piece of text, which must be there exactly once: that is
// looked at without -museum as well, so that no exhibit silently stops fitting. It
// counts as caught if the changed module compiles and its tests fail, and say what they
// must say. The canary comes first: the same tests in an unchanged copy must pass.
package museum
