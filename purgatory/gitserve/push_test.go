package gitserve

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"
	"testing"
)

var (
	one, two = strings.Repeat("1", 40), strings.Repeat("2", 40)
	null     = strings.Repeat("0", 40)
	event    = strings.Repeat("a", 64)
)

func packet(lines ...string) string {
	var b bytes.Buffer
	for _, l := range lines {
		writeLine(&b, l)
	}
	return b.String() + "0000"
}

// For any input: no panic, a bounded read, and accepted requests survive a round trip.
func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(packet(null+" "+one+" refs/heads/main\x00report-status", one+" "+two+" refs/nostr/"+event) + "PACK"))
	f.Add([]byte(packet("shallow " + one)))
	f.Add([]byte("0000"))
	f.Add([]byte("fff0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		req, err := readRequest(in, 5, 500)
		if read := len(data) - in.Len(); read > 500 {
			t.Fatalf("%d bytes read", read)
		}
		if err != nil {
			if !errors.Is(err, errRequest) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			return
		}
		var again bytes.Buffer
		for _, c := range req.commands {
			writeLine(&again, cmp.Or(c.old.String(), null)+" "+cmp.Or(c.new.String(), null)+" "+c.name)
		}
		again.WriteString("0000")
		second, err := readRequest(&again, 5, 1000)
		if err != nil || len(second.commands) != len(req.commands) {
			t.Fatal(err)
		}
		for i, c := range second.commands {
			if first := req.commands[i]; *c != *first {
				t.Fatal(c, first)
			}
		}
	})
}
