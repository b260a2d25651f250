package wire

// skip moves past one value at nesting depth level.
func (s *scanner) skip(level int) error {
	switch c := s.peek(); {
	case c == '"':
		return s.skipString()
	case c == '[':
		return s.array(level, func() error { return s.skip(level + 1) })
	case c == '{':
		return s.object(level, func([]byte) error { return s.skip(level + 1) })
	case c == '-' || c-'0' < 10:
		return s.skipNumber()
	case s.literal("true") || s.literal("false") || s.literal("null"):
		return nil
	}
	return malformed("no value where one is needed")
}

// skipString moves past a string without decoding it.
func (s *scanner) skipString() error {
	if !s.accept('"') {
		return malformed("no string where one is needed")
	}
	for s.pos < len(s.data) {
		s.pos = plain(s.data, s.pos)
		switch s.peek() {
		case '"':
			s.pos++
			return nil
		case '\\':
			s.pos += 2
		default:
			s.pos++
		}
	}
	s.pos = len(s.data)
	return malformed("string without end")
}

// skipNumber moves past a JSON number.
func (s *scanner) skipNumber() error {
	s.accept('-')
	if !s.accept('0') && !s.digits() {
		return malformed("number without digits")
	}
	if s.accept('.') && !s.digits() {
		return malformed("number without digits")
	}
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		if !s.digits() {
			return malformed("number without digits")
		}
	}
	return s.numberEnd()
}

// numberEnd checks that a number is complete. No other character may follow it directly, and the
// text must not end within it.
func (s *scanner) numberEnd() error {
	if c := s.peek(); s.pos == len(s.data) || isWord(c) || c == '.' || c == '-' || c == '+' {
		return malformed("not a number")
	}
	return nil
}

// digits moves past digits and reports whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.peek()-'0' < 10 {
		s.pos++
	}
	return s.pos > start
}

// array reads an array at nesting depth level, and calls element at the start of each value.
func (s *scanner) array(level int, element func() error) error {
	if err := s.enter('[', level); err != nil {
		return err
	}
	if s.accept(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if done, err := s.after(']'); done || err != nil {
			return err
		}
	}
}

// object reads an object at nesting depth level, and calls member at the start of each value. The
// key is valid during the call.
func (s *scanner) object(level int, member func(key []byte) error) error {
	if err := s.enter('{', level); err != nil {
		return err
	}
	if s.accept('}') {
		return nil
	}
	for {
		key, err := s.rawString()
		if err != nil {
			return err
		}
		s.space()
		if !s.accept(':') {
			return malformed("no colon after a key")
		}
		s.space()
		if err := member(key); err != nil {
			return err
		}
		if done, err := s.after('}'); done || err != nil {
			return err
		}
	}
}

// enter moves past the beginning of an array or object.
func (s *scanner) enter(start byte, level int) error {
	if !s.accept(start) {
		return malformed("no array or object where one is needed")
	}
	if level >= s.depth {
		return malformed("nested too deep")
	}
	s.space()
	return nil
}

// after moves past the separator after a value of an array or object, and reports whether it was
// the end.
func (s *scanner) after(end byte) (done bool, err error) {
	s.space()
	if s.accept(',') {
		s.space()
		return false, nil
	}
	if s.accept(end) {
		return true, nil
	}
	return false, malformed("no comma or end after a value")
}
