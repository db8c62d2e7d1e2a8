"""What `chat` is made of: the line that is typed, the turns, the commands, the store, the screen."""
