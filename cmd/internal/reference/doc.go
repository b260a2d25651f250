// Package reference generates the parts of docs that repeat the code, and checks that they are
// current:
//
//	go test ./cmd/internal/reference -update
package reference
