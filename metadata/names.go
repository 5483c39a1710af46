package metadata

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// TopicNameMax is Kafka's limit on a topic's name, in bytes.
const TopicNameMax = 249

// ErrInvalidTopic: the name is not one that Kafka allows, is reserved, or
// collides with another topic's.
var ErrInvalidTopic = errors.New("metadata: invalid topic name")

// reservedTopics are Kafka's internal topics. Clients know the names; their
// content lives in shard state here, so nobody may create or see such a topic.
var reservedTopics = map[string]bool{
	"__consumer_offsets":  true,
	"__transaction_state": true,
}

// ReservedTopic tells whether a name belongs to one of Kafka's internal topics.
func ReservedTopic(name string) bool { return reservedTopics[name] }

// nameError is an ErrInvalidTopic whose text, which clients show, is enough.
type nameError string

func invalidName(format string, args ...any) error { return nameError(fmt.Sprintf(format, args...)) }

// Error implements error.
func (e nameError) Error() string { return string(e) }

// Unwrap gives the kind.
func (nameError) Unwrap() error { return ErrInvalidTopic }

// CheckTopicName applies Kafka's rules for the names of new topics.
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return invalidName("topic name is empty")
	case name == "." || name == "..":
		return invalidName("topic name %q cannot be . or ..", name)
	case len(name) > TopicNameMax:
		return invalidName("topic name: expected at most %d characters, found %d", TopicNameMax, len(name))
	}
	for i, c := range name {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return invalidName("topic name %q: expected ASCII letters, digits, '.', '_' and '-', found %s at byte %d",
				name, characterAt(name, i), i)
		}
	}
	if ReservedTopic(name) {
		return invalidName("topic name %q is reserved", name)
	}
	return nil
}

// characterAt shows the character that begins at a byte, or the byte where
// none does.
func characterAt(name string, at int) string {
	c, size := utf8.DecodeRuneInString(name[at:])
	if c == utf8.RuneError && size <= 1 {
		return fmt.Sprintf("byte %#02x", name[at])
	}
	return strconv.QuoteRune(c)
}

// collides tells whether two different names fall on one key.
func collides(a, b string) bool { return a != b && topicKeyName(a) == topicKeyName(b) }
