// Package reference makes those parts of docs that say what the code says, and checks that they
// are of now:
//
//	go test ./cmd/internal/reference -update
package reference
