package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "graspserver")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// read reads a command line of serve, and an environment.
func read(args []string, environ ...string) (options, error) {
	var p program
	_, err := parse(&p, args, environ, io.Discard)
	return p.Serve.Options, err
}

// command runs a command of an operator who has a secret key.
func command(ctx context.Context, args []string, key string, out io.Writer) error {
	var errs bytes.Buffer
	if code := execute(ctx, append([]string{"admin"}, args...), []string{"GRASPSERVER_ADMIN_KEY=" + key}, out, &errs); code != 0 {
		return errors.New(errs.String())
	}
	return nil
}

func TestParse(t *testing.T) {
	opt, err := read([]string{"-listen", "127.0.0.1:4000", "--bootstrap", "wss://a.example", "-bootstrap", "B.example/"},
		"GRASPSERVER_DATA=/srv/events", "GRASPSERVER_ALLOW_NET=10.0.0.0/8, 192.168.0.0/16", "GRASPSERVER_CLIENT_HEADER=X-Real-IP",
		"GRASPSERVER_BATCH_WINDOW=1s", "GRASPSERVER_ALLOW_PLAINTEXT=true", "GRASPSERVER_LISTEN=127.0.0.1:1", "GRASPSERVER_BOOTSTRAP=wss://c.example", "HOME=/root")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:4000", opt.Listen, "the command line wins")
	require.Equal(t, "/srv/events", opt.Data)
	require.Len(t, opt.AllowNet, 2)
	require.True(t, opt.AllowPlaintext)
	require.Equal(t, time.Second, opt.BatchWindow)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("X-Real-Ip", "1.2.3.4")
	r.RemoteAddr = "127.0.0.1:1"
	require.Equal(t, "1.2.3.4", clientOf(opt.ClientHeader, opt.TrustedProxy)(r))
	r.RemoteAddr = "5.6.7.8:1"
	require.Equal(t, "5.6.7.8", clientOf(opt.ClientHeader, opt.TrustedProxy)(r), "anybody can set a header")
	require.Nil(t, clientOf("", nil))
	require.Equal(t, 14*24*time.Hour, opt.Grace)
	require.True(t, opt.Maintenance)
	require.Len(t, opt.Bootstrap, 2)
	require.Equal(t, "wss://b.example", opt.Bootstrap[1].String())

	opt, err = read([]string{"-trusted-proxy", "5.6.7.8/32,10.0.0.0/8", "-grace", "48h", "-maintenance=false", "-max-push-bytes", "1000", "-staged-bytes", "2GiB",
		"-max-bytes", "10G", "-fsck-allow", "hasDotgit,duplicateEntries", "-fsck-allow", "nullSha1"})
	require.NoError(t, err)
	r.Header.Set("X-Forwarded-For", "9.9.9.9, 1.2.3.4, 10.0.0.1")
	require.Equal(t, "1.2.3.4", clientOf(opt.ClientHeader, opt.TrustedProxy)(r))
	require.Equal(t, 48*time.Hour, opt.Grace)
	require.False(t, opt.Maintenance)
	require.EqualValues(t, 1000, opt.MaxPushBytes)
	require.EqualValues(t, 2<<30, opt.StagedBytes)
	require.EqualValues(t, 10e9, opt.MaxBytes)
	require.Zero(t, opt.MaxOwnerBytes)
	require.Equal(t, []string{"hasDotgit", "duplicateEntries", "nullSha1"}, opt.FsckAllow)

	opt, err = read([]string{"serve", "-domain-limit", "github.com:10,60", "-domain-limit", "a.example:3000:1,2 b.example:3,4", "-expiry", "1m"})
	require.NoError(t, err)
	require.Equal(t, "[github.com:443:10,60 a.example:3000:1,2 b.example:443:3,4]", fmt.Sprint(opt.DomainLimit))
	require.Equal(t, 5, opt.DomainConcurrent)
	require.Equal(t, 30, opt.DomainRate)
	require.Equal(t, time.Minute, opt.Expiry)

	for _, bad := range [][]string{
		{"-listen", "0.0.0.0:7334"}, {"-listen", ":7334"}, {"-listen", "x"}, {"-bootstrap", "http://a.example"},
		{"-domain-limit", "x.example:5"}, {"-domain-limit", "x.example"}, {"-domain-limit", "x.example:a,b"},
		{"-allow-net", "10.0.0.0"}, {"-batch-window", "soon"}, {"-summary-every", "0s"}, {"more"},
		{"-trusted-proxy", "10.0.0.1"}, {"-grace", "0s"}, {"-staged-bytes", "0"}, {"-max-push-bytes", "-1"},
	} {
		_, err := read(bad)
		require.Error(t, err, bad)
	}
	key := strings.Repeat("ab", 32)
	npub, err := nip19.EncodePublicKey(key)
	require.NoError(t, err)
	for _, who := range []string{key, npub} {
		opt, err := read([]string{"-pubkey", who, "-curation", "no mirrors", "-contact", "a@example.com", "-icon", "https://a.example/i.png"})
		require.NoError(t, err)
		require.Equal(t, key, opt.Pubkey.String())
		require.Equal(t, "no mirrors", opt.Curation)
	}

	for flag, wants := range map[string]string{
		"-pubkey=nobody": "-pubkey", "-pubkey=npub1": "-pubkey",
		"-max-git-memory=2X": "want a size, such as",
		"-expiry=30":         "such as 90s, 30m or 24h", "-expiry=-30m": "-expiry: \"-30m\": want more than 0", "-domain-concurrent=0": "-domain-concurrent: \"0\": want more than 0",
		"-domain-rate=-1": "-domain-rate: \"-1\": want more than 0", "-grace=0s": "-grace: \"0s\": want more than 0",
		"-bootstrap=ws://a.example":   "-bootstrap ws://a.example: plaintext URL, needs -allow-plaintext",
		"-domain-limit=a.example:0,0": "-domain-limit: \"a.example:0,0\": want host:concurrent,rate with numbers above 0",
		"-max-bytes=-1":               "-max-bytes: \"-1\": want a size", "-max-owner-bytes=-1": "-max-owner-bytes: \"-1\": want a size",
		"-max-push-bytes=99EiB": "want a size", "-max-push-bytes=9EB": "",
		"-client-header=X Real": "-client-header \"X Real\": want the name of a header",
		"-expiry=x":             "-expiry: \"x\": want", "-domain-rate=x": "want a whole number", "-maintenance=x": "-maintenance: bool value must be true",
		"-log-level=x": "-log-level must be one of \"debug\",\"info\",\"warn\",\"error\"", "-listen=x": "-listen \"x\": want host:port", "-also-domain=::": "-also-domain \"::\": want host",
		"-domain=https//typo": "-domain \"https//typo\": want host", "-expiry": "-expiry: a value is missing",
		"-domian=x": "unknown flag --domian, did you mean \"--domain\"?", "sreve": "unexpected argument sreve",
	} {
		_, err := read([]string{flag})
		if wants != "" {
			require.ErrorContains(t, err, wants, "an error names the flag, not a field of the library")
		}
	}
	_, err = read(nil, "GRASPSERVER_BASE_BACKOFF=x")
	require.EqualError(t, err, "environment: --base-backoff: \"x\": want a time with a unit, such as 90s, 30m or 24h")
	_, err = read([]string{"--base-backoff", "y"}, "GRASPSERVER_BASE_BACKOFF=3s")
	require.EqualError(t, err, "--base-backoff: \"y\": want a time with a unit, such as 90s, 30m or 24h")
}

// The environment precedes the file, and a flag both. "config" prints each with its source.
func TestSettingsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "graspserver.conf")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("# a server\ndomain = grasp.example\n\nbootstrap = wss://a.example, wss://b.example\nmax-bytes=10G\nexpiry = 1h\n")
	opt, err := read([]string{"-config", file, "-expiry", "2h"}, "GRASPSERVER_MAX_BYTES=1G")
	require.NoError(t, err)
	require.Equal(t, "grasp.example", opt.Domain)
	require.Len(t, opt.Bootstrap, 2)
	require.EqualValues(t, 1e9, opt.MaxBytes)
	require.Equal(t, 2*time.Hour, opt.Expiry)
	t.Setenv("GRASPSERVER_CONFIG", file)
	opt, err = read(nil)
	require.NoError(t, err)
	require.Equal(t, time.Hour, opt.Expiry)
	var out, errs bytes.Buffer
	require.Zero(t, execute(t.Context(), []string{"config", "-expiry", "2h"}, []string{"GRASPSERVER_MAX_BYTES=1G"}, &out, &errs), errs.String())
	for _, line := range []string{`domain +grasp.example +file, line 2`, `max-bytes +1G +environment`, `expiry +2h0m0s +flag`, `grace +336h +default`} {
		require.Regexp(t, "(?m)^"+line+"$", out.String())
	}
	write("domian = grasp.example\n")
	_, err = read([]string{"-config", file})
	require.EqualError(t, err, `file, line 1: "domian" is an unknown setting, the nearest is domain`)
	write("expiry = 30\n")
	_, err = read([]string{"-config", file})
	require.ErrorContains(t, err, `file, line 1: --expiry: "30": want a time`)
	_, err = read([]string{"-config", file + "x"})
	require.ErrorContains(t, err, "-config: ")
	require.ErrorContains(t, err, "no such file")
	for text, want := range map[string]string{
		"domain = a.example\n[x]\n":                  "file, line 2: want name = value",
		"domain = a.example\n\ndomain = b.example\n": `file, line 3: "domain" is set twice`,
		"domain = a.example # ours\nurll = x":        `file, line 2: "urll" is an unknown setting, the nearest is`,
	} {
		write(text)
		_, err = read([]string{"-config", file})
		require.ErrorContains(t, err, want)
	}
}

// The help has the commands, examples and all flags in groups, each in at most twelve words.
func TestHelp(t *testing.T) {
	binary := buildServer(t)
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	help := run("-h")
	require.Equal(t, help, run("help"))
	place := 0
	for _, part := range []string{"Usage: graspserver <command>", "Examples:", "GRASPSERVER_MAX_BYTES", "Commands:", "explain", "Main settings:", "--domain=HOST",
		"Name and description:", "--curation", "Limits:", "--max-bytes=SIZE", "Log:", "Advanced:", "--fetch-backoff"} {
		at := strings.Index(help[place:], part)
		require.GreaterOrEqual(t, at, 0, part)
		place += at
	}
	require.Regexp(t, "^graspserver .* \\(go", run("version"))
	require.Equal(t, run("version"), run("-version"))
	require.Contains(t, run("admin", "-h"), "refetch <repository>")
	require.Contains(t, run("admin"), "refetch <repository>")
	require.Contains(t, run("help", "explain"), "Usage: graspserver explain <subject>")
	require.NotContains(t, run("explain", "-h"), "--domain")
	fields := reflect.TypeFor[options]()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.IsExported() {
			require.LessOrEqual(t, len(strings.Fields(f.Tag.Get("help"))), 12, f.Name)
			require.NotEmpty(t, f.Tag.Get("help"), f.Name)
			require.NotEmpty(t, f.Tag.Get("group"), f.Name)
		}
	}
}

// The settings that come with it are such as there are, commented out or not.
func TestSampleSettings(t *testing.T) {
	sample, err := os.ReadFile("deploy/graspserver.env")
	require.NoError(t, err)
	var environ []string
	for _, m := range regexp.MustCompile(`(?m)^#?(GRASPSERVER_[A-Z_]+=.*)$`).FindAllStringSubmatch(string(sample), -1) {
		environ = append(environ, m[1])
	}
	require.Greater(t, len(environ), 8)
	_, err = read(nil, environ...)
	require.NoError(t, err)
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
	for name, near := range map[string]string{
		"GRASPSERVER_BOOTSTRAPS": "GRASPSERVER_BOOTSTRAP", "GRASPSERVER_DOMIAN": "GRASPSERVER_DOMAIN",
		"GRASPSERVER_MAX-BYTES": "GRASPSERVER_MAX_BYTES", "graspserver_domain": "GRASPSERVER_DOMAIN",
	} {
		_, err := read(nil, name+"=not to be printed")
		require.EqualError(t, err, fmt.Sprintf("environment: %q is an unknown setting, the nearest is %s", name, near))
	}
	_, err := read(nil, "GRASPSERVER_ADMIN_KEY=of graspserver admin", "GRASPSERVER_DOMAIN=grasp.example")
	require.NoError(t, err)
}
