package gitserve_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// mixed is a push of some KiB for a branch and for an event that is not stored. Its thin pack
// contains n deltas against a large blob in the repository.
func (r *rig) mixed(t *testing.T, n int, name func(i int) string) (body, tip string) {
	t.Helper()
	big := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // never fails
	require.NoError(t, os.WriteFile(filepath.Join(r.work, "big"), big, 0o600))
	git(t, r.work, "add", "big")
	r.tip = r.commit(t, "big")
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	from, _ := hex.DecodeString(idOf("blob", big))
	var entries [][]byte
	var tree []byte
	parent := r.tip
	for i := range n {
		head := fmt.Sprintf("variant %02d\n", i)
		content := append([]byte(head), big...)
		id, _ := hex.DecodeString(idOf("blob", content))
		tree = append(append(tree, fmt.Sprintf("100644 %s\x00", name(i))...), id...)
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(big))), uint64(len(content)))
		delta = append(append(delta, byte(len(head))), head...)
		for at := 0; at < len(big); at += 1 << 16 { // size 0x10000 is encoded without bytes
			delta = append(delta, 0x80|0x0f, byte(at), byte(at>>8), byte(at>>16), byte(at>>24))
		}
		entries = append(entries, packEntry(7, from, delta))
	}
	commit := []byte("tree " + idOf("tree", tree) + "\nparent " + parent + "\nauthor a <a@x> 1700000000 +0000\ncommitter a <a@x> 1700000000 +0000\n\nx\n")
	tip = idOf("commit", commit)
	r.says(map[string]string{"refs/heads/main": tip})
	pack := packOf(append(entries, packEntry(2, nil, tree), packEntry(1, nil, commit))...)
	return packet(r.tip+" "+tip+" refs/heads/main\x00report-status", null+" "+tip+" refs/nostr/"+stranger(1)) + string(pack), tip
}

func variant(i int) string { return fmt.Sprintf("v%02d", i) }

// The branch part of a mixed push was repacked without a limit. A push of some KiB added many MiB
// to the repository.
func TestRestOfAMixedPushIsBounded(t *testing.T) {
	racetest.Amounts(t)
	const most = 1 << 20
	r := newRig(t, gitserve.Config{})
	body, tip := r.mixed(t, 20, variant)
	r.serve(t, gitserve.Config{MaxPush: most}) // the repository contains the large file already
	before := files(t, r.dir())
	resp, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/git-receive-pack", body)
	require.Equal(t, 200, resp.StatusCode, text)
	require.Contains(t, text, fmt.Sprintf("more than %d bytes", most))
	require.NotContains(t, r.has(t), tip)
	require.Equal(t, before, files(t, r.dir()))
	require.Empty(t, lies(t, r.repos.Dir()))
}
