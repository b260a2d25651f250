package statuspage

// Meaning says what a reason means.
func Meaning(part, reason string) string { return meaning(part, reason) }

// Meanings says how many reasons have a meaning.
func Meanings(part string) int { return len(meanings[part]) }
