import {
  type QueryKey,
  type UseMutationResult,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'

/** Runs a change, then reads again all queries whose keys begin with one of `keys`. */
export function useChange<Input, Output>(
  keys: readonly QueryKey[],
  mutationFn: (input: Input) => Promise<Output>,
): UseMutationResult<Output, Error, Input> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    // Answers may hold secrets, and requests tokens: nothing stays when the view has ended.
    gcTime: 0,
    onSuccess: () => Promise.all(keys.map((queryKey) => queries.invalidateQueries({ queryKey }))),
  })
}
