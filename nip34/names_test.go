package nip34_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// The URLs of this service do not depend on the Host header of a client.
func TestCaseC4_NamesOfAnIdentity(t *testing.T) {
	for spec, want := range map[string]string{
		"grasp.example.com": "https://grasp.example.com", "grasp.example.com:7334": "https://grasp.example.com:7334", "127.0.0.1:3334": "http://127.0.0.1:3334",
		"localhost:3334": "http://localhost:3334", "ws://a.example:81": "", "http://a.example:8080/git/": "http://a.example:8080/git", "wss://a.example/x": "https://a.example/x",
	} {
		id, err := nip34.ParseIdentity(spec)
		if want == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, id.CloneBase(), spec)
	}
	id, err := nip34.ParseIdentity("a.example", "https://b.example:8443/git", "ws://c.example", "d.example:8081")
	require.NoError(t, err)
	for host, want := range map[string]string{
		"a.example": "https://a.example", "a.example:443": "https://a.example", "b.example:8443": "https://b.example:8443",
		"c.example": "http://c.example", "d.example:8081": "https://d.example:8081",
		"evil.example": "https://a.example", "b.example": "https://a.example", "": "https://a.example", "a.example.evil.example": "https://a.example",
	} {
		u := id.Origin(host)
		require.Equal(t, want, u.String(), host)
	}
	require.Empty(t, nip34.Identity{}.CloneBase())
	require.Empty(t, nip34.Identity{}.Origin("a.example").Scheme)
}
