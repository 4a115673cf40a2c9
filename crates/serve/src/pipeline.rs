//! Many inputs: the offline phase of the next one runs on a second connection during the online phase of this one.
use crate::{Answer, Client, Engine, PhaseReport, Prepared, ServeError};
use std::sync::mpsc;
use std::thread;

/// Material for one input, and the setup that came before it.
type Made<E> = (Option<PhaseReport>, Prepared, <E as Engine>::Material);

/// Answers inputs in order, calling `each` with the index and the answer. Material is made on a second connection, one input
/// ahead; stored material is not touched. The first answer carries the cost of the second connection's setup.
///
/// # Errors
/// The first error of either connection, or of `each`; answers before it were delivered.
pub fn infer_many<E: Engine>(
    client: &mut Client<E>,
    inputs: &[Vec<i64>],
    mut each: impl FnMut(usize, Answer) -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let mut maker = client.again()?;
    let (sender, receiver) = mpsc::sync_channel::<Made<E>>(0);
    thread::scope(|scope| {
        let making = scope.spawn(move || -> Result<_, ServeError> {
            for _ in inputs {
                let setup = maker.setup()?;
                let (prepared, material) = maker.prepare_in_memory()?;
                if sender.send((setup, prepared, material)).is_err() {
                    // The online side failed and reports it.
                    break;
                }
            }
            drop(sender);
            // Kept open until the server has used what it holds in memory for this client.
            Ok(maker)
        });
        let mut work = || -> Result<(), ServeError> {
            for (index, input) in inputs.iter().enumerate() {
                let Ok((setup, prepared, material)) = receiver.recv() else {
                    return Ok(());
                };
                let answer = client.online(prepared.id, material, input)?;
                each(index, Answer { setup, prepared: Some(prepared), ..answer })?;
            }
            Ok(())
        };
        let answered = work();
        drop(receiver);
        let made = making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answered.and(made.map(|_| ()))
    })
}
