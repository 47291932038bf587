/** Returns the value of `key`. Creates and stores it if it is missing. */
export function getOrInsert<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  const existing = map.get(key)
  if (existing !== undefined) return existing
  const value = make()
  map.set(key, value)
  return value
}
