package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
)

type operatorClient struct {
	URL string `default:"http://127.0.0.1:7334" placeholder:"URL" help:"URL of the server."`
	For string `placeholder:"URL" help:"URL to sign for, if -domain of the server differs from -url."`
	Key string `placeholder:"FILE" help:"File with your secret key, nsec or hex, instead of GRASPSERVER_ADMIN_KEY."`
}

func (c *operatorClient) do(ctx context.Context, set settings, out io.Writer, name string, args ...string) error {
	key, err := secretKey(c.Key, set[adminKey].value)
	if err != nil {
		return err
	}
	client := admin.Client{URL: c.URL, SignedURL: c.For, Key: key}
	result, err := client.Do(ctx, name, control.JoinReason(name, args)...)
	switch {
	case errors.Is(err, admin.ErrNoServer):
		return fmt.Errorf("%w\nStart the server with -admin <your npub>, and set -url to its -listen address, such as http://127.0.0.1:7334", err)
	case err != nil && strings.Contains(err.Error(), "signed for another URL"):
		return fmt.Errorf("%w\nSet -for to the URL that the server has as -domain, such as https://grasp.example.com", err)
	case err != nil:
		return err
	case bytes.Equal(result, []byte("true")):
		_, err = fmt.Fprintln(out, "done")
		return err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, result, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", graspsync.PrintableJSON(pretty.Bytes()))
	return err
}

const adminKey = "GRASPSERVER_ADMIN_KEY"

func secretKey(file, text string) (string, error) {
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

type adminCommand struct {
	Client  operatorClient `embed:""`
	Command []string       `arg:"" optional:"" passthrough:"partial" help:"Command with its arguments."`
}

func (adminCommand) Help() string {
	return "The server obeys the keys of -admin.\n\nCommands:\n\n    " + strings.Join(control.Usage(), "\n    ")
}

func (c *adminCommand) Run(ctx context.Context, command *kong.Context, set settings, out io.Writer) error {
	if len(c.Command) == 0 {
		return command.PrintUsage(false)
	}
	return c.Client.do(ctx, set, out, c.Command[0], c.Command[1:]...)
}

type explainCommand struct {
	StatusURL string `default:"http://127.0.0.1:7335" placeholder:"URL" help:"URL of the status page of the server (-admin-listen)."`
	JSON      bool   `name:"json" help:"Print all details as JSON."`
	Subject   string `arg:"" help:"Event, repository or relay in any spelling, such as npub1.../name."`
}

func (c *explainCommand) Run(ctx context.Context, out io.Writer) error {
	var all json.RawMessage
	if err := askStatus(ctx, c.StatusURL, "event", c.Subject, &all); err != nil {
		return err
	}
	var short struct{ Answer []string }
	if err := json.Unmarshal(all, &short); err != nil {
		return err
	}
	if c.JSON {
		_, err := fmt.Fprintf(out, "%s\n", graspsync.PrintableJSON(all))
		return err
	}
	for _, line := range short.Answer {
		line = longID.ReplaceAllString(line, "$1…")
		fmt.Fprintln(out, graspsync.PrintableAtMost(line, 1<<16)) // a terminal would obey control bytes in texts of strangers
	}
	return nil
}

// longID matches an id of an event or a git object, of which the first 12 digits are shown.
var longID = regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{28,52}\b`)

func askStatus(ctx context.Context, at, name, value string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(at, "/")+"/status.json?"+url.Values{name: {value}}.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := new(http.Client).Do(req)
	if err != nil {
		return fmt.Errorf("no status page at %s: %w\nSet -status-url to the -admin-listen address of the server", at, short(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var failed struct{ Error string }
		if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil || failed.Error == "" {
			return fmt.Errorf("status %d from %s", resp.StatusCode, at)
		}
		return errors.New(graspsync.Printable(failed.Error))
	}
	return json.NewDecoder(resp.Body).Decode(to)
}
