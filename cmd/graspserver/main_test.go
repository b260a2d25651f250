package main

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

func TestParse(t *testing.T) {
	env := map[string]string{
		"GRASPSERVER_DATA": "/srv/events", "GRASPSERVER_ALLOW_NET": "10.0.0.0/8, 192.168.0.0/16",
		"GRASPSERVER_CLIENT_HEADER": "X-Real-IP",
		"GRASPSERVER_BATCH_WINDOW":  "1s", "GRASPSERVER_ALLOW_PLAINTEXT": "true", "GRASPSERVER_LISTEN": "127.0.0.1:1",
	}
	opt, err := parse([]string{"-listen", "127.0.0.1:4000", "-bootstrap", "wss://a.example", "-bootstrap", "B.example/"},
		func(k string) string { return env[k] })
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:4000", opt.listen, "the command line wins")
	require.Equal(t, "127.0.0.1:4000", opt.domain)
	require.Equal(t, "/srv/events", opt.data)
	require.Len(t, opt.allowNet, 2)
	require.True(t, opt.allowPlaintext)
	require.Equal(t, time.Second, opt.batchWindow)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("X-Real-Ip", "1.2.3.4")
	r.RemoteAddr = "127.0.0.1:1"
	require.Equal(t, "1.2.3.4", clientOf(opt.clientHeader, opt.proxies)(r))
	r.RemoteAddr = "5.6.7.8:1"
	require.Equal(t, "5.6.7.8", clientOf(opt.clientHeader, opt.proxies)(r), "anybody can set a header")
	require.Nil(t, clientOf("", nil))
	require.Equal(t, 14*24*time.Hour, opt.grace)
	require.True(t, opt.maintenance)
	require.Equal(t, "wss://b.example", opt.bootstrap[1].String())

	opt, err = parse([]string{"-trusted-proxy", "5.6.7.8/32,10.0.0.0/8", "-grace", "48h", "-maintenance=false", "-max-push-bytes", "1000", "-staged-bytes", "1600",
		"-fsck-allow", "hasDotgit,duplicateEntries", "-fsck-allow", "nullSha1"},
		func(string) string { return "" })
	require.NoError(t, err)
	r.Header.Set("X-Forwarded-For", "9.9.9.9, 1.2.3.4, 10.0.0.1")
	require.Equal(t, "1.2.3.4", clientOf(opt.clientHeader, opt.proxies)(r))
	require.Equal(t, 48*time.Hour, opt.grace)
	require.False(t, opt.maintenance)
	require.EqualValues(t, 1000, opt.maxPushBytes)
	require.EqualValues(t, 1600, opt.stagedBytes)
	require.Equal(t, []string{"hasDotgit", "duplicateEntries", "nullSha1"}, opt.fsckAllow)

	opt, err = parse([]string{"-domain-limit", "github.com:10,60", "-domain-limit", "a.example:3000:1,2 b.example:3,4", "-expiry", "1m"},
		func(string) string { return "" })
	require.NoError(t, err)
	require.Len(t, opt.domainLimits, 3)
	require.Equal(t, purgatory.Limit{Concurrent: 10, PerMinute: 60}, opt.domainLimits[graspsync.HostPort{Host: "github.com", Port: 443}])
	require.Equal(t, purgatory.Limit{Concurrent: 1, PerMinute: 2}, opt.domainLimits[graspsync.HostPort{Host: "a.example", Port: 3000}])
	require.Equal(t, purgatory.Limit{Concurrent: 5, PerMinute: 30}, opt.perDomain)
	require.Equal(t, time.Minute, opt.expiry)

	for _, bad := range [][]string{
		{"-listen", "0.0.0.0:7334"}, {"-listen", ":7334"}, {"-listen", "x"}, {"-bootstrap", "http://a.example"},
		{"-domain-limit", "x.example:5"}, {"-domain-limit", "x.example"}, {"-domain-limit", "x.example:a,b"},
		{"-allow-net", "10.0.0.0"}, {"-batch-window", "soon"}, {"-summary-every", "0s"}, {"more"},
		{"-trusted-proxy", "10.0.0.1"}, {"-grace", "0s"}, {"-staged-bytes", "0"}, {"-max-push-bytes", "-1"},
	} {
		_, err := parse(bad, func(string) string { return "" })
		require.Error(t, err, bad)
	}
	key := strings.Repeat("ab", 32)
	npub, err := nip19.EncodePublicKey(key)
	require.NoError(t, err)
	for _, who := range []string{key, npub} {
		opt, err := parse([]string{"-pubkey", who, "-curation", "no mirrors", "-contact", "a@example.com", "-icon", "https://a.example/i.png"}, func(string) string { return "" })
		require.NoError(t, err)
		require.Equal(t, key, opt.pubkey)
		require.Equal(t, "no mirrors", opt.curation)
	}

	for flag, wants := range map[string]string{
		"-pubkey=nobody": "-pubkey", "-pubkey=npub1": "-pubkey",
		"-max-git-memory=2G": "without a unit, such as 2147483648",
		"-expiry=30":         "such as 90s, 30m or 24h", "-expiry=-30m": "-expiry: want more than 0", "-domain-concurrent=0": "-domain-concurrent: want more than 0",
		"-domain-rate=-1": "-domain-rate: want more than 0", "-grace=0s": "-grace: want more than 0",
		"-bootstrap=ws://a.example":   "-bootstrap ws://a.example: plaintext URL, needs -allow-plaintext",
		"-domain-limit=a.example:0,0": "-domain-limit: want host:concurrent,rate with numbers above 0",
		"-max-bytes=-1":               "-max-bytes: want 0", "-max-owner-bytes=-1": "-max-owner-bytes: want 0",
		"-client-header=X Real": "-client-header: want the name of a header",
		"-expiry=x":             "invalid value \"x\" for flag -expiry", "-domain-rate=x": "want a whole number", "-maintenance=x": "-maintenance: want true or false",
		"-log-level=x": "-log-level: want debug, info, warn or error", "-listen=x": "-listen: want host:port", "-also-domain=::": "-also-domain: want host",
		"-domain=https//typo": "-domain: want host",
	} {
		_, err := parse([]string{flag}, func(string) string { return "" })
		require.ErrorContains(t, err, wants, "an error names the flag, not a field of the library")
	}
	_, err = parse(nil, func(k string) string { return map[string]string{"GRASPSERVER_BASE_BACKOFF": "x"}[k] })
	require.ErrorContains(t, err, `invalid value "x" for GRASPSERVER_BASE_BACKOFF: want a time with a unit`)
}

// Whoever sets a list in the environment finds how in the help.
func TestHelpOfLists(t *testing.T) {
	to, err := os.Create(filepath.Join(t.TempDir(), "help"))
	require.NoError(t, err)
	defer to.Close()
	stdout := os.Stdout
	os.Stdout = to
	_, err = parse([]string{"-h"}, func(string) string { return "" })
	os.Stdout = stdout
	require.ErrorIs(t, err, flag.ErrHelp)
	help, err := os.ReadFile(to.Name())
	require.NoError(t, err)
	require.Contains(t, string(help), "for repositories, events and records")
	require.Equal(t, strings.Count(string(help), "(repeat"), strings.Count(string(help), "(repeat, or separate by "))
	require.Equal(t, 7, strings.Count(string(help), "(repeat, or separate by "))
}

// The settings that come with it are such as there are, commented out or not.
func TestSampleSettings(t *testing.T) {
	sample, err := os.ReadFile("deploy/graspserver.env")
	require.NoError(t, err)
	set := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^#?(GRASPSERVER_[A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(sample), -1) {
		set[m[1]] = m[2]
	}
	require.Greater(t, len(set), 8)
	asked := make(map[string]bool)
	_, err = parse(nil, func(name string) string { asked[name] = true; return set[name] })
	require.NoError(t, err)
	for name := range set {
		require.True(t, asked[name], "%s is no setting", name)
	}
}

// A server that changes its domain is both until announcements say the new one.
func TestAlsoDomain(t *testing.T) {
	opt, err := parse([]string{"-domain", "new.example", "-also-domain", "old.example", "-also-domain", "older.example"},
		func(string) string { return "" })
	require.NoError(t, err)
	require.Equal(t, []string{"old.example", "older.example"}, opt.also)
}

// Whoever runs it wants to know what it is, also where nothing is set up.
func TestVersion(t *testing.T) {
	opt, err := parse([]string{"-version"}, func(string) string { return "" })
	require.NoError(t, err)
	require.True(t, opt.version)
	require.NotEmpty(t, version())
	before := released
	defer func() { released = before }()
	released = "v1.2.3"
	require.Equal(t, "v1.2.3", version())
}

// A -domain is meant as it is written in announcements, whatever it has before and after its name.
func TestDomainSpellings(t *testing.T) {
	want, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	for _, domain := range []string{"grasp.example.com", "https://grasp.example.com", "https://grasp.example.com/", "wss://grasp.example.com/", "grasp.example.com/"} {
		got, err := nip34.ParseIdentity(domain)
		require.NoError(t, err, domain)
		require.Equal(t, want.RelayURL(), got.RelayURL(), domain)
		require.Equal(t, "grasp.example.com", bare(domain))
	}
	_, err = nip34.ParseIdentity("https//typo.example.com")
	require.Error(t, err)
}

// GRASPSERVER_BOOTSTRAPS was ignored, and the server synced with nobody.
func TestCaseC11_UnknownSetting(t *testing.T) {
	none := func(string) string { return "" }
	for name, near := range map[string]string{
		"GRASPSERVER_BOOTSTRAPS": "GRASPSERVER_BOOTSTRAP", "GRASPSERVER_DOMIAN": "GRASPSERVER_DOMAIN",
		"GRASPSERVER_MAX-BYTES": "GRASPSERVER_MAX_BYTES", "graspserver_domain": "GRASPSERVER_DOMAIN",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "not to be printed")
			_, err := parse(nil, none)
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, err, "the nearest is "+near)
			require.NotContains(t, err.Error(), "not to be printed")
		})
	}
	_, err := parse([]string{"-bootstraps", "wss://relay.example"}, none)
	require.ErrorContains(t, err, "the nearest flag is -bootstrap")
	t.Setenv("GRASPSERVER_ADMIN_KEY", "of graspserver admin")
	t.Setenv("GRASPSERVER_DOMAIN", "grasp.example")
	_, err = parse(nil, none)
	require.NoError(t, err)
}
