package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
)

// adminUsage is the first part of the text of "graspserver admin -h".
const adminUsage = `graspserver admin [-url URL] [-for URL] [-key file] <command> [arguments]

commands a running server that was started with -admin and your npub. The secret key, nsec or hex, is
read from the file, or from GRASPSERVER_ADMIN_KEY.

`

// command implements "graspserver admin".
func command(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	fs := flag.NewFlagSet("graspserver admin", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	url := fs.String("url", "http://127.0.0.1:7334", "`URL` of the server")
	signed := fs.String("for", "", "`URL` to sign for, if -domain of the server differs (default -url)")
	file := fs.String("key", "", "`file` with your secret key (default GRASPSERVER_ADMIN_KEY)")
	if slices.ContainsFunc(args, isSecret) {
		return errSecret
	}
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) || err == nil && fs.NArg() == 0 {
		fmt.Fprint(out, adminUsage)
		fs.SetOutput(out)
		fs.PrintDefaults()
		fmt.Fprintf(out, "\n  %s\n", strings.Join(control.Usage(), "\n  "))
		return flag.ErrHelp
	}
	if err != nil {
		return err
	}
	name, params := fs.Arg(0), control.Join(fs.Arg(0), fs.Args()[1:])
	key, err := secretKey(*file, getenv)
	if err != nil {
		return err
	}
	client := admin.Client{URL: *url, Signed: *signed, Key: key}
	result, err := client.Do(ctx, name, params...)
	switch {
	case errors.Is(err, admin.ErrNoServer):
		return fmt.Errorf("%w\nStart the server with -admin <your npub>, and set -url to its -listen address, such as http://127.0.0.1:7334", err)
	case err != nil && strings.Contains(err.Error(), "signed for another URL"):
		return fmt.Errorf("%w\nSet -for to the URL that the server has as -domain, such as https://grasp.example.com", err)
	case err != nil:
		return err
	}
	if bytes.Equal(result, []byte("true")) {
		fmt.Fprintln(out, "done")
		return nil
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, result, "", "  "); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", graspsync.PrintableJSON(pretty.Bytes())) // terminals would obey control bytes in texts of strangers
	return nil
}

// adminKey is the environment variable for the secret key of the operator.
const adminKey = "GRASPSERVER_ADMIN_KEY"

// secretKey returns a key as 64 hex digits. Its errors do not contain the key.
func secretKey(file string, getenv func(string) string) (string, error) {
	text := getenv(adminKey)
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("-key: %w", err)
		}
		text = string(data)
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return "", errors.New("no secret key: set -key to a file that contains it, or GRASPSERVER_ADMIN_KEY to the key")
	}
	if strings.HasPrefix(text, "nsec1") {
		if _, value, err := nip19.Decode(text); err == nil {
			text, _ = value.(string)
		}
	}
	if len(text) != 64 {
		return "", errors.New("not a secret key: want nsec or 64 hex digits")
	}
	return text, nil
}
