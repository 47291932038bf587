import {
  type QueryKey,
  type UseMutationResult,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'

interface ChangeOptions {
  /** Whether the answer shows before the queries were read again, as secrets do. */
  readonly showsAtOnce?: boolean
}

/**
 * Runs a change, then reads again all queries whose keys begin with one of `keys`: after a refusal,
 * too, because somebody else may have changed the same.
 */
export function useChange<Input, Output>(
  keys: readonly QueryKey[],
  mutationFn: (input: Input) => Promise<Output>,
  { showsAtOnce = false }: ChangeOptions = {},
): UseMutationResult<Output, Error, Input> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    // Answers may hold secrets, and requests tokens: nothing stays when the view has ended.
    gcTime: 0,
    onSettled: async (_output, error) => {
      const reading = Promise.all(keys.map((queryKey) => queries.invalidateQueries({ queryKey })))
      if (error === null && !showsAtOnce) await reading
    },
  })
}
