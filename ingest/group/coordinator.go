package group
