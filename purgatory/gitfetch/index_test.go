package gitfetch

import (
	"bytes"
	"strings"
	"testing"

	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// Invalid indexes are refused.
func FuzzReadIndex(f *testing.F) {
	head := append([]byte(barerepo.IndexMark), make([]byte, 1024)...)
	f.Add(head, []byte("ab"))
	one := bytes.Clone(head)
	one[len(one)-1] = 1
	f.Add(append(one, make([]byte, 20)...), []byte(strings.Repeat("0", 40)))
	f.Fuzz(func(t *testing.T, data, id []byte) {
		for _, n := range []int{20, 32} {
			x, err := readIndex(data, n)
			if err != nil {
				continue
			}
			if x.len()*n > len(data) {
				t.Fatal("more ids than there is room for")
			}
			_ = packIndexes{x}.has(id)
		}
	})
}
