# Makes a program of the C++ blocks of a page: blocks marked "cpp" unchanged, then a main in which each block marked "cpp body"
# has its own scope.
/^```cpp body/ { inside = 2; body = body "  {\n"; next }
/^```cpp/ { inside = 1; next }
/^```/ {
  if (inside == 2) body = body "  }\n"
  inside = 0
}
inside == 1 { print }
inside == 2 { body = body "    " $0 "\n" }
END { printf "\nint main() {\n%s}\n", body }
