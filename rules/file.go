package rules

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/graspsync/graspsync"
)

// File is the content of a rules file.
type File struct {
	Rules []Rule
	// Bootstrap contains relays that are always followed.
	Bootstrap []graspsync.RelayURL
}

const maxLine = 8 << 10

// ParseFile reads rules, one per line:
//
//	block author npub1...              # why
//	block repository npub1.../name
//	block relay spam.example
//	allow relay good.example:4443
//	block event nevent1...
//	bootstrap wss://relay.example
//
// Text after a # at the start of the line or after a space is the reason. After an error no rule is
// used. The error wraps [ErrRule] and contains the line number.
func ParseFile(r io.Reader) (File, error) {
	var f File
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		if err := f.addLine(lines.Text()); err != nil {
			return File{}, fmt.Errorf("line %d: %w", n, err)
		}
		if len(f.Rules)+len(f.Bootstrap) > MaxRules {
			return File{}, fmt.Errorf("line %d: %w: more than %d", n, ErrFull, MaxRules)
		}
	}
	if err := lines.Err(); err != nil {
		return File{}, fmt.Errorf("reading rules: %w", err)
	}
	return f, nil
}

func (f *File) addLine(text string) error {
	text, reason := cutComment(text)
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil
	case words[0] == "bootstrap" && len(words) == 2:
		u, err := graspsync.ParseRelayURL(words[1])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRule, err)
		}
		f.Bootstrap = append(f.Bootstrap, u)
		return nil
	case words[0] == "bootstrap":
		return fmt.Errorf("%w: want: bootstrap <URL of a relay>", ErrRule)
	case words[0] != string(Block) && words[0] != string(Allow):
		return fmt.Errorf("%w: it begins with %q: want block, allow or bootstrap", ErrRule, graspsync.Clip(words[0], 50))
	case len(words) < 3:
		return fmt.Errorf("%w: want: block|allow relay|author|repository|event <which>", ErrRule)
	}
	// An identifier may contain spaces.
	name := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), words[0])), words[1]))
	subject, err := ParseSubject(words[1], name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRule, err)
	}
	rule := Rule{Action: Action(words[0]), Subject: subject, Reason: cleanText(reason, MaxReason), By: byFile}
	if err := rule.check(); err != nil {
		return err
	}
	f.Rules = append(f.Rules, rule)
	return nil
}

const byFile = "file"

func cutComment(text string) (before, after string) {
	if i := strings.Index(" "+text, " #"); i >= 0 {
		return text[:max(0, i-1)], strings.TrimSpace(text[i+1:])
	}
	if i := strings.Index(text, "\t#"); i >= 0 {
		return text[:i], strings.TrimSpace(text[i+2:])
	}
	return text, ""
}
