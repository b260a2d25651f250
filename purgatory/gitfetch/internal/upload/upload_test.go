package upload

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/pktline"
)

func meter() *Meter { return &Meter{Total: new(atomic.Int64)} }

func line(s string) string { return pktline.Line(s) }

const (
	idA = "1111111111111111111111111111111111111111"
	idB = "2222222222222222222222222222222222222222"
)

func oid(t testing.TB, s string) nip34.ObjectID {
	id, err := nip34.ParseObjectID(s)
	require.NoError(t, err)
	return id
}

func TestAdvertisements(t *testing.T) {
	v2, err := parseAdvertisement(strings.NewReader(line("# service=git-upload-pack\n")+"0000"+
		line("version 2\n")+line("agent=x\n")+line("fetch=shallow filter\n")+line("object-format=sha256\n")+"0000"), 10)
	require.NoError(t, err)
	require.Equal(t, 2, v2.Version)
	require.Equal(t, nip34.SHA256, v2.Format)
	require.True(t, v2.Serves(oid(t, idA+idA[:24])))
	require.False(t, v2.Serves(oid(t, idA)), "another format")

	for _, first := range []string{"", line("version 1\n")} {
		v0, err := parseAdvertisement(strings.NewReader(line("# service=git-upload-pack\n")+"0000"+first+
			line(idA+" HEAD\x00side-band-64k ofs-delta symref=HEAD:refs/heads/main\n")+
			line(idA+" refs/heads/main\n")+line("shallow "+idB+"\n")+"0000"), 10)
		require.NoError(t, err)
		require.Zero(t, v0.Version)
		require.True(t, v0.Serves(oid(t, idA)))
		require.False(t, v0.Serves(oid(t, idB)))
	}
	empty, err := parseAdvertisement(strings.NewReader(line(strings.Repeat("0", 40)+" capabilities^{}\x00allow-reachable-sha1-in-want\n")+"0000"), 10)
	require.NoError(t, err)
	require.Empty(t, empty.Tips)
	require.True(t, empty.Serves(oid(t, idB)))

	_, err = parseAdvertisement(strings.NewReader(line("ERR access denied\x1b[1m\n")), 10)
	require.ErrorIs(t, err, ErrRemote)
	require.NotContains(t, err.Error(), "\x1b")
	_, err = parseAdvertisement(strings.NewReader(line(idA+" a\n")+strings.Repeat(line(idA+" b\n"), 20)), 10)
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
}

// An answer never causes a panic, and uses no more memory than a packet.
func FuzzAdvertisement(f *testing.F) {
	f.Add([]byte(line("# service=git-upload-pack\n") + "0000" + line("version 2\n") + line("fetch\n") + "0000"))
	f.Add([]byte(line(idA+" HEAD\x00side-band-64k\n") + "0000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseAdvertisement(bytes.NewReader(data), 100)
		if err == nil && len(s.caps) > maxCapabilities {
			t.Fatal("too much is remembered")
		}
	})
}

// No data is passed on before the header is checked.
func FuzzAnswer(f *testing.F) {
	pack := "PACK\x00\x00\x00\x02\x00\x00\x00\x01rest"
	f.Add(uint8(2), []byte(line("packfile\n")+line("\x01"+pack)+"0000"))
	f.Add(uint8(0), []byte(line("NAK\n")+line("\x01"+pack)+"0000"))
	f.Add(uint8(1), []byte(line("NAK\n")+pack))
	f.Fuzz(func(t *testing.T, how uint8, data []byte) {
		s := &Server{caps: map[string]string{}}
		switch how % 3 {
		case 2:
			s.Version = 2
		case 0:
			s.caps["side-band-64k"] = ""
		}
		var out bytes.Buffer
		p := &packReader{w: &out, meter: meter(), limits: Limits{PackBytes: 1 << 10, PackObjects: 5}}
		err := s.readAnswer(newReader(bytes.NewReader(data)), p)
		if out.Len() > 1<<10 {
			t.Fatal("more than the limit was passed on")
		}
		if out.Len() > 0 && !bytes.HasPrefix(out.Bytes(), []byte("PACK\x00\x00\x00")) {
			t.Fatalf("%q was passed on", out.Bytes())
		}
		if err == nil && p.end() == nil && out.Len() < packHeader {
			t.Fatal("success without a pack")
		}
	})
}
