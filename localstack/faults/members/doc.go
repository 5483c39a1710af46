// Package members runs consumers of a group that write down what they see, and
// checks the records of all of them together: who owned which partition from
// when to when, what was read, and which commits were accepted.
package members
